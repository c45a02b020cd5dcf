"""Converts text that a policy may have written to HTML. Pure.

Uses `insight.sanitize` and turns terminal colours into classes. The HTML is `Markup` with everything escaped. It comes
in pieces so that pages are rendered in slices: colouring a long text can take a second.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from markupsafe import Markup, escape

from sandbox_server.insight.sanitize import SEQUENCE, last_written
from sandbox_server.insight.sanitize import plain as plain

MOST = 8_000
"""Maximum characters of a text that shares its page with others."""
MOST_ALONE = 1_000_000
"""Maximum characters of a text with a page of its own."""
_DIFF_LINES = 5_000
_DIFF_BYTES = 400_000

_BASIC = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255)),
    (255, 255, 255),
)
_FLAGS = {1: "b", 2: "d", 3: "i", 4: "u", 9: "s"}


def cut(text: str, most: int) -> tuple[str, int, str]:
    """Cut `text` to at most `most` characters: (beginning, number of omitted characters, end)."""
    if len(text) <= most:
        return text, 0, ""
    head, tail = most * 3 // 4, most // 4
    return text[:head], len(text) - head - tail, text[-tail:]


def terminal(text: str, most: int = MOST) -> Iterator[Markup]:
    """Terminal output as HTML, in pieces; longer than `most` characters it is cut in the middle."""
    head, left_out, tail = cut(text, most)
    yield from _coloured(head)
    if left_out:
        yield Markup('\n<span class="cut">… {} characters left out …</span>\n').format(f"{left_out:,}")
        yield from _coloured(tail)


def diff(patch: bytes) -> Iterator[Markup]:
    """A patch with a class for each kind of line, in pieces."""
    lines = patch[:_DIFF_BYTES].decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:_DIFF_LINES]):
        yield Markup('{}<span class="{}">{}</span>').format("\n" if number else "", _kind(line), plain(line))
    if len(patch) > _DIFF_BYTES or len(lines) > _DIFF_LINES:
        yield Markup('\n<span class="cut">… the rest of {} bytes is not shown …</span>').format(f"{len(patch):,}")


def _kind(line: str) -> str:
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "rename ", "similarity ")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")


def _coloured(text: str) -> Iterator[Markup]:
    text = last_written(text)
    style = _Style()
    at = 0
    for found in SEQUENCE.finditer(text):
        yield style.dress(text[at : found.start()])
        at = found.end()
        if found["sgr"] is not None:
            style.obey(found["sgr"])
    yield style.dress(text[at:])


class _Style:
    """The state set by SGR sequences."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._flags: set[str] = set()
        self._colours = {"f": -1, "g": -1}
        self._inverse = False

    def dress(self, text: str) -> Markup:
        """Wrap the text in the current style."""
        if not text:
            return Markup("")
        front, back = self._colours["f"], self._colours["g"]
        if self._inverse:
            front, back = back, front
        names = sorted(self._flags)
        names += [f"f{front}"] if front >= 0 else []
        names += [f"g{back}"] if back >= 0 and back != front else []  # never text in its own background colour
        names += ["inv"] if self._inverse and front < 0 and back < 0 else []
        if not names:
            return escape(plain(text))
        return Markup('<span class="{}">{}</span>').format(" ".join(names), plain(text))

    def obey(self, codes: str) -> None:
        """Apply one sequence."""
        numbers = [int(code or 0) for code in re.split("[;:]", codes)]
        while numbers:
            code = numbers.pop(0)
            if code == 0:
                self._reset()
            elif code in _FLAGS:
                self._flags.add(_FLAGS[code])
            elif code in (22, 23, 24, 29):
                self._flags -= {22: {"b", "d"}, 23: {"i"}, 24: {"u"}, 29: {"s"}}[code]
            elif code in (7, 27):
                self._inverse = code == 7
            elif code in (38, 48):
                self._colours["f" if code == 38 else "g"] = _extended(numbers)
            else:
                self._basic(code)

    def _basic(self, code: int) -> None:
        for first, ground, bright in ((30, "f", 0), (40, "g", 0), (90, "f", 8), (100, "g", 8)):
            if first <= code < first + 8:
                self._colours[ground] = code - first + bright
        if code in (39, 49):
            self._colours["f" if code == 39 else "g"] = -1


def _extended(numbers: list[int]) -> int:
    """The colour after 38 or 48, removed from `numbers`: the nearest of the sixteen."""
    match numbers:
        case [5, n, *_]:
            del numbers[:2]
            return n if n < 16 else _nearest(_cube(n))
        case [2, red, green, blue, *_]:
            del numbers[:4]
            return _nearest((red, green, blue))
    numbers.clear()
    return -1


def _cube(n: int) -> tuple[int, int, int]:
    if n >= 232:
        return ((n - 232) * 10 + 8,) * 3
    red, green, blue = (n - 16) // 36, (n - 16) // 6 % 6, (n - 16) % 6
    return (red * 51, green * 51, blue * 51)


@lru_cache(1024)
def _nearest(colour: tuple[int, int, int]) -> int:
    return min(range(16), key=lambda n: sum((a - b) ** 2 for a, b in zip(_BASIC[n], colour, strict=True)))
