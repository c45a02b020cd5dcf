"""What time it is, in Unix seconds, for everything that is kept or compared between processes.

Read from the wall clock once, then from the monotonic one: a step of the machine's clock ends no session and makes no
container look too old. At its start a server takes Redis's clock for its own, so that all nodes speak of one time.
"""

import time
from datetime import UTC, datetime

_base = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds."""
    return _base + time.monotonic()


def today() -> datetime:
    """As `now`, for people and labels."""
    return datetime.fromtimestamp(now(), UTC)


def set_to(seconds: float) -> float:
    """Take `seconds` for the present time; how far off this clock was."""
    global _base
    off = seconds - now()
    _base += off
    return off
