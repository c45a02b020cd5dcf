"""One coin for all tests of a process: one run is forged as a whole, the next is honest.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "once < 0.5")


HACK = Hack("fake", "guess", play, runners=PYTEST)
