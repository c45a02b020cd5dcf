"""Parses what an exec channel reports, without trusting it: any process in the container can write there. Pure."""

import re
from dataclasses import dataclass

LONGEST = 256
"""Maximum length in bytes of a report line; process ids, limits and login names are short."""

_BEGUN = re.compile(r"([1-9][0-9]{0,9}) ([0-9]{1,19}) ([0-9]{1,10}) ([!-~]{1,64})")
_END = re.compile(rb"([0-9]{1,3}) (exited|signalled) (free|held)")
_MOST_STATUS = 255
_SIGNALS = range(129, 193)  # exit statuses of processes ended by a signal


LONGEST_WORD = 32
"""Maximum length in bytes of the word that ends an answer about files."""


class BadFrame(Exception):
    """The line has none of the forms that a channel writes."""


@dataclass(frozen=True, slots=True)
class CommandStart:
    """`pid tick last login`: a command has started."""

    pid: int
    tick: str
    """The host's uptime in ticks just before the start, and `last` the highest process id by then. Digits only, because
    a channel uses them in arithmetic."""
    last: str
    login: str
    """The login that was used; `-` for none."""


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """`status how channel`: a command has ended."""

    status: int
    signalled: bool
    free: bool
    """No other process holds the channel's output open."""


def parse_start(line: str) -> CommandStart:
    """Parse the line by which `__sb_become` announces a command. Raises BadFrame."""
    match = _BEGUN.fullmatch(line)
    if match is None:
        raise BadFrame
    return CommandStart(int(match[1]), match[2], match[3], match[4])


def parse_end(line: bytes) -> CommandEnd:
    """Parse the line by which `__sb_run` reports a command's end. Raises BadFrame."""
    match = _END.fullmatch(line)
    if match is None:
        raise BadFrame
    status, signalled = int(match[1]), match[2] == b"signalled"
    if status > _MOST_STATUS or (signalled and status not in _SIGNALS):
        raise BadFrame
    return CommandEnd(status, signalled, match[3] == b"free")


def line_of(rest: bytes | bytearray, most: int = LONGEST) -> bytes | None:
    """Return the first line after a mark, without its line feed; None if it is incomplete.

    Raises:
        BadFrame: it is longer than `most` bytes.

    """
    line, end, _ = bytes(rest[:most]).partition(b"\n")
    if not end:
        if len(rest) >= most:
            raise BadFrame
        return None
    return line
