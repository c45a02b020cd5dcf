"""Finds test functions by name, and the parts of calls, in Go, Java, JavaScript, TypeScript and Rust. Pure.

What is misread costs variants only: each is tried with gold before it is used.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.grading.variants.lexing import Token, lexed

_OPENING, _CLOSING = "([{", ")]}"
_CODE = frozenset({"string", "number", "word", "sign"})
_TITLED = frozenset({"it", "test", "specify", "fit"})
_FILLED = re.compile(r"\$\{[^}]*\}|%[sdifjopc#]|\$[A-Za-z_][\w.]*")
"""What a title's values come in: those of a template, and those of a table's row (jest, vitest)."""


@dataclass(frozen=True, slots=True)
class Code:
    """A file's tokens and brackets."""

    path: str
    tokens: Sequence[Token]
    """Without comments."""
    closing: Mapping[int, int]
    """Number of an opening bracket's token -> that of its closing one."""
    places: Mapping[str, Sequence[int]]
    """Word -> numbers of its tokens."""
    titles: Sequence[tuple[Sequence[str], range]]
    """The blocks such as `it("adds", () => {...})`, with their titles, cut where values come in."""

    @classmethod
    def of(cls, path: str, text: bytes) -> "Code":
        """Read a file."""
        return cls.made_of(path, lexed(path, text))

    @classmethod
    def made_of(cls, path: str, found: Sequence[Token]) -> "Code":
        """From what `lexed` found."""
        tokens = [token for token in found if token.kind in _CODE]
        closing: dict[int, int] = {}
        open_: list[int] = []
        for at, token in enumerate(tokens):
            if token.kind == "sign" and token.text in _OPENING:
                open_.append(at)
            elif token.kind == "sign" and token.text in _CLOSING and open_:
                closing[open_.pop()] = at
        places: dict[str, list[int]] = {}
        for at, token in enumerate(tokens):
            if token.kind == "word":
                places.setdefault(token.text, []).append(at)
        called = (_titled_block(tokens, closing, at) for word in _TITLED for at in places.get(word, ()))
        return cls(path, tokens, closing, places, [block for block in called if block is not None])

    def text(self, at: int) -> str:
        """Text of a token; "" beyond the ends."""
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def words(self, span: range) -> str:
        """The tokens of a span in one line, to compare it with other text."""
        return " ".join(self.tokens[at].text for at in span)

    def elements(self, opening: int) -> list[range]:
        """The parts between an opening bracket and its closing one, separated by commas."""
        parts: list[range] = []
        at = begin = opening + 1
        while at < self.closing[opening]:
            if self.text(at) == ",":
                parts.append(range(begin, at))
                begin = at + 1
            at = self.closing.get(at, at) + 1
        return [*parts, range(begin, self.closing[opening])]

    def bodies(self, name: str) -> list[range]:
        """The tokens of each function, class or titled block that the row's test `name` may refer to."""
        if not self.path.endswith((".go", ".rs", ".java")):
            return self._titled(name.strip().encode().decode("latin-1"))
        words = _names(name, self.path)
        found = ([*self._declared(word, whole)] for whole in (False, True) for word in words)
        return next(filter(None, found), [])

    def _declared(self, word: str, whole: bool) -> Iterator[range]:
        """The functions of this name; `whole`: the classes."""
        for at in self.places.get(word, ()):
            called = self.text(at + 1) not in ("(", "<") or self.text(at - 1) in {".", "new", "(", "=", "class"}
            if self.text(at - 1) == "class" if whole else not called:
                body = next((to for to in range(at + 1, min(at + 60, len(self.tokens))) if self.text(to) in "{;}"), -1)
                if self.text(body) == "{" and body in self.closing:
                    yield range(body, self.closing[body] + 1)

    def _titled(self, name: str) -> list[range]:
        """The blocks with the longest title that `name` ends with."""
        found: dict[int, list[range]] = {}
        for title, body in self.titles:
            if (length := sum(map(len, title))) and _ends_with(name, title):
                found.setdefault(length, []).append(body)
        return found[max(found)] if found else []


def _titled_block(tokens: Sequence[Token], closing: Mapping[int, int], at: int) -> tuple[Sequence[str], range] | None:
    """Title and tokens of the block whose word is at `at`: `it(...)`, `it.only(...)`, `it.each([...])(...)`.

    The tokens include the table.
    """
    begin = at + 1
    while [token.text for token in tokens[begin : begin + 1]] == ["."]:
        begin += 2
    opening = begin + 1 if begin < len(tokens) and tokens[begin].kind == "string" else begin  # each`a | b ...`(...)
    if opening in closing and closing[opening] + 1 in closing and tokens[closing[opening] + 1].text == "(":
        opening = closing[opening] + 1
    if opening not in closing or tokens[opening + 1].kind != "string":
        return None
    title = re.sub(r"\\(.)", r"\1", tokens[opening + 1].text[1:-1])
    return _FILLED.split(title), range(begin if begin != opening else opening + 2, closing[opening])


def _ends_with(name: str, title: Sequence[str]) -> bool:
    """Whether the last words of `name` are the title, with values of at least one character where it is cut."""
    end = len(name) - len(title[-1])
    if not name.endswith(title[-1]):
        return False
    for part in reversed(title[:-1]):
        if (end := name.rfind(part, 0, max(end - 1, 0))) < 0:
            return False
    return not title[0] or not name[:end][-1:].isalnum()


def _names(name: str, path: str) -> list[str]:
    """The words of a test's name that may be its function's, the likeliest first."""
    if path.endswith(".rs"):
        return [name.split("::")[-1]]
    if path.endswith(".go"):
        head, *subtests = name.split("/")
        return [*(part for part in reversed(subtests) if part.startswith("Test")), head]
    return [*reversed(re.findall(r"\w+", name))]
