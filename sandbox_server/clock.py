"""The current time in Unix seconds, for all times that are stored or compared between processes.

The wall clock is read once, then the monotonic one: a step of the machine's clock ends no session and makes no
container look too old. At start-up a server adopts Redis's clock, so that all nodes use the same time; later it follows
it, by going faster or slower but never back: a host that was suspended, or whose clocks drift, catches up.
"""

import time
from datetime import UTC, datetime

FOLLOW_S = 30.0
"""`follow` is called this often, and closes a gap within this time if the bound of the rate allows."""
_RATE = 0.1
"""Share by which this clock may go faster or slower, and so the largest share by which a wait becomes shorter."""

_at = time.time()
_since = time.monotonic()
_rate = 0.0


def now() -> float:
    """Unix seconds."""
    passed = time.monotonic() - _since
    return _at + passed + _rate * min(passed, FOLLOW_S)


def today() -> datetime:
    """`now` as a datetime (UTC), for people and labels."""
    return datetime.fromtimestamp(now(), UTC)


def set_to(seconds: float) -> float:
    """Set the current time to `seconds`; returns how far off this clock was."""
    off = seconds - now()
    _go_on(seconds, 0.0)
    return off


def follow(seconds: float) -> float:
    """Approach `seconds`, the true time, during the next FOLLOW_S; returns how far off this clock is."""
    off = seconds - now()
    _go_on(now(), max(-_RATE, min(_RATE, off / FOLLOW_S)))
    return off


def _go_on(at: float, rate: float) -> None:
    global _at, _since, _rate
    _at, _since, _rate = at, time.monotonic(), rate
