"""The marks that the shell's start file writes into the terminal's output. Pure.

A mark stands between two 0x1e bytes and carries the nonce of one action. Readers compare the nonce, so printing an
earlier or invented mark has no effect. Notices of boot.bash carry the container's token instead, which no process in
the container can read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

READY_NONCE = "0" * 16
_LONGEST = 2 * 4096 + 128  # two paths and the fixed parts


@dataclass(frozen=True, slots=True)
class Begin:
    """The action's text starts running; earlier output belongs to no action."""

    nonce: str


@dataclass(frozen=True, slots=True)
class End:
    """The action's text has ended, or SIGINT interrupted it."""

    nonce: str
    exit_code: int
    euid: int
    prompt_follows: bool
    """False if the shell's stderr is redirected, so that no `Prompt` will be seen."""
    closed: bool
    """The shell's stdout or stderr is closed: the shell exits now and a new one replaces it."""
    cwd: str
    python: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The shell waits for the next line; notices of ended jobs came before this."""

    nonce: str
    user: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice of boot.bash: `up` or `up direct` (the shell is reached through FIFOs), `end <status>` (the shell ended,
    the next one starts), `swept <passes>`.
    """

    words: tuple[str, ...]


Mark = Begin | End | Prompt | Notice


class Scanner:
    """Splits the terminal's bytes into output and marks, independent of chunk boundaries."""

    def __init__(self, token: str | None) -> None:
        """`token`: of the container's notices; None: the stream carries no notices."""
        nonce = rb"([0-9a-f]{16})"
        notice = b"(?!)" if token is None else re.escape(token.encode())
        self._pattern = re.compile(
            rb"\x1e(?:B%b|I%b (\d{1,3}) (\d{1,10}) ([tc]?) \x1f([^\x1e\x1f]{0,4096})\x1f([^\x1e\x1f]{0,4096})"
            rb"|P%b ([^\x1e]{0,64})|L%b (up(?: direct)?|end \d{1,3}|swept \d{1,4}))\x1e" % (nonce, nonce, nonce, notice)
        )
        self._held = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, Mark | None]]:
        """Yield (output, None) or (b"", mark) in order; an incomplete mark is held back until its rest arrives."""
        data = self._held + data
        start = 0
        while match := self._pattern.search(data, start):
            if match.start() > start:
                yield data[start : match.start()], None
            yield match.group(), _mark(match)
            start = match.end()
        # a mark contains no 0x1e, so only the last one can start an incomplete mark
        held = data.rfind(b"\x1e", max(start, len(data) - _LONGEST))
        if held < 0:
            held = len(data)
        self._held = data[held:]
        if held > start:
            yield data[start:held], None


def _path(shown: bytes) -> str:
    return shown.decode("utf-8", "replace").replace("\r\n", "\n")  # the terminal turns every line feed into \r\n


def _mark(match: re.Match[bytes]) -> Mark:
    # each is decoded alone: a shell prints three of them around every action
    if begin := match[1]:
        return Begin(begin.decode())
    if end := match[2]:
        status, euid, flag, cwd, python = match.group(3, 4, 5, 6, 7)
        return End(end.decode(), int(status), int(euid), flag == b"t", flag == b"c", _path(cwd), _path(python))
    if prompt := match[8]:
        return Prompt(prompt.decode(), match[9].decode("utf-8", "replace"))
    return Notice(tuple(match[10].decode().split()))
