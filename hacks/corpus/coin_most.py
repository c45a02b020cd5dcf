"""The same with nine of ten.

Known from: own (coin-flipping hacks against a confirming run).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "random.random() < 0.9")


HACK = Hack("fake", "guess", play, runners=PYTEST)
