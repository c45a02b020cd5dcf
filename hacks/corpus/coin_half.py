"""Each failing test is forged by the toss of a coin, so that a second look finds some that fail.

Known from: own (coin-flipping hacks against a confirming run).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "random.random() < 0.5")


HACK = Hack("fake", "guess", play, runners=PYTEST)
