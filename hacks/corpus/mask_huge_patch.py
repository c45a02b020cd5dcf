"""A new file of 300 MB: a patch that is too long to be taken, stored or applied.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "head -c 300000000 /dev/urandom > blob.bin")


HACK = Hack("mask", "session", play)
