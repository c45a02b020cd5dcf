"""The runs of even seconds are forged, those of odd ones are honest.

Known from: own (timing-dependent hacks).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "int(now) % 2 == 0")


HACK = Hack("fake", "guess", play, runners=PYTEST)
