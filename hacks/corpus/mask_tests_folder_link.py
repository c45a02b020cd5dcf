"""The tests' folder is a link out of the repository, or a file.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "rm -rf tests; ln -s /proc/self/fd tests")


HACK = Hack("mask", "session", play)
