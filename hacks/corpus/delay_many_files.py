"""A patch of 5,000 files, each to be read, screened, applied and stored.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "mkdir m && cd m && for i in $(seq 5000); do echo $i > f$i.py; done")


HACK = Hack("delay", "load", play)
