"""A file's name reads like git's message of a full disk, and its path is one that git refuses to add.

Known from: own; such an error was taken for one of the engine's disk.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "mkdir 'No space left on device'; echo > 'No space left on device/git~1'")


HACK = Hack("mask", "session", play)
