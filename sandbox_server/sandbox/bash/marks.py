"""The marks by which the shell's start file speaks to us in the middle of the terminal's bytes. Pure.

A mark stands between two 0x1e bytes and carries the nonce of one action, so output that shows an earlier mark,
or a program that prints one, changes nothing: whoever reads compares the nonce. Notices of the loop around the
shell carry the container's token instead, which no process in the container can read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

READY_NONCE = "0" * 16
_LONGEST = 2 * 4096 + 128  # two paths and the fixed parts


@dataclass(frozen=True, slots=True)
class Begin:
    """The action's text is about to run; what came before belongs to no action."""

    nonce: str


@dataclass(frozen=True, slots=True)
class End:
    """The action's text has run, or SIGINT cut it off."""

    nonce: str
    exit_code: int
    euid: int
    prompt_follows: bool
    """False: the shell's stderr leads elsewhere, so no `Prompt` will be seen."""
    closed: bool
    """The shell's stdout or stderr is closed: it ends now and a new one takes over."""
    cwd: str
    python: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The shell waits for the next line; notices of ended jobs came before."""

    nonce: str
    user: str


@dataclass(frozen=True, slots=True)
class Notice:
    """The loop speaks: `up`, `end <status>` (the shell ended, the next one starts), `swept <passes>`."""

    words: tuple[str, ...]


Mark = Begin | End | Prompt | Notice


class Scanner:
    """Splits the terminal's bytes into output and marks, whatever the chunks."""

    def __init__(self, token: str) -> None:
        nonce = rb"([0-9a-f]{16})"
        self._pattern = re.compile(
            rb"\x1e(?:B%b|I%b (\d{1,3}) (\d{1,10}) ([tc]?) \x1f([^\x1e\x1f]{0,4096})\x1f([^\x1e\x1f]{0,4096})"
            rb"|P%b ([^\x1e]{0,64})|L%b (up|end \d{1,3}|swept \d{1,4}))\x1e"
            % (nonce, nonce, nonce, re.escape(token.encode()))
        )
        self._held = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, Mark | None]]:
        """Pairs of (raw bytes, mark or None for output), in request; an unfinished mark is held back."""
        data = self._held + data
        start = 0
        while match := self._pattern.search(data, start):
            if match.start() > start:
                yield data[start : match.start()], None
            yield match.group(), _mark(match)
            start = match.end()
        # a mark holds no 0x1e within, so only the last one can begin an unfinished mark
        held = data.rfind(b"\x1e", max(start, len(data) - _LONGEST))
        if held < 0:
            held = len(data)
        self._held = data[held:]
        if held > start:
            yield data[start:held], None


def _path(shown: str | None) -> str:
    return (shown or "").replace("\r\n", "\n")  # the terminal turns every line feed into both


def _mark(match: re.Match[bytes]) -> Mark:
    begin, end, status, euid, flag, cwd, python, prompt, user, notice = (
        None if group is None else group.decode("utf-8", "replace") for group in match.groups()
    )
    if begin is not None:
        return Begin(begin)
    if end is not None:
        return End(end, int(status or 0), int(euid or 0), flag == "t", flag == "c", _path(cwd), _path(python))
    if prompt is not None:
        return Prompt(prompt, user or "")
    return Notice(tuple((notice or "").split()))
