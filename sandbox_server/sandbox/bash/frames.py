"""Parses what an exec channel reports, without trust: whatever runs in the container can write there too. Pure."""

import re
from dataclasses import dataclass

LONGEST = 256
"""Bytes of a line of ours; no process number, limit or name of a login is long."""

_BEGUN = re.compile(r"([1-9][0-9]{0,9}) ([0-9]{1,19}) ([0-9]{1,10}) ([!-~]{1,64})")
_END = re.compile(rb"([0-9]{1,3}) (exited|signalled) (free|held)")
_MOST_STATUS = 255
_SIGNALS = range(129, 193)  # statuses of what a signal ended


LONGEST_WORD = 32
"""Bytes of the word at the end of an answer about files."""


class BadFrame(Exception):
    """The line has no form that a channel writes."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """`pid tick last login`: a command runs."""

    pid: int
    tick: str
    """The host's uptime in ticks just before the start, and the last process id by then; digits, a channel calculates
    with them."""
    last: str
    login: str
    """The login that was used; `-`: none."""


@dataclass(frozen=True, slots=True)
class Ending:
    """`status how channel`: a command has ended."""

    status: int
    signalled: bool
    free: bool
    """No other process holds the channel's output open."""


def beginning(line: str) -> Beginning:
    """Read what `__sb_become` announces. Raises BadFrame."""
    match = _BEGUN.fullmatch(line)
    if match is None:
        raise BadFrame
    return Beginning(int(match[1]), match[2], match[3], match[4])


def ending(line: bytes) -> Ending:
    """Read how `__sb_run` says that a command ended. Raises BadFrame."""
    match = _END.fullmatch(line)
    if match is None:
        raise BadFrame
    status, signalled = int(match[1]), match[2] == b"signalled"
    if status > _MOST_STATUS or (signalled and status not in _SIGNALS):
        raise BadFrame
    return Ending(status, signalled, match[3] == b"free")


def line_of(rest: bytes | bytearray, most: int = LONGEST) -> bytes | None:
    """The first line after a mark, without its line feed; None: it is not complete yet.

    Raises:
        BadFrame: it is longer than `most` bytes.

    """
    line, end, _ = bytes(rest[:most]).partition(b"\n")
    if not end:
        if len(rest) >= most:
            raise BadFrame
        return None
    return line
