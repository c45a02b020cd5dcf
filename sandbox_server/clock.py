"""The current time in Unix seconds, for all times that are stored or compared between processes.

The wall clock is read once, then the monotonic one: a step of the machine's clock ends no session and makes no
container look too old. At start-up a server adopts Redis's clock, so that all nodes use the same time.
"""

import time
from datetime import UTC, datetime

_base = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds."""
    return _base + time.monotonic()


def today() -> datetime:
    """`now` as a datetime (UTC), for people and labels."""
    return datetime.fromtimestamp(now(), UTC)


def set_to(seconds: float) -> float:
    """Set the current time to `seconds`; returns how far off this clock was."""
    global _base
    off = seconds - now()
    _base += off
    return off
