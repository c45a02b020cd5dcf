"""The session's mktemp fails: where the capture needs it, the session stays `ending`, with container and slot.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "rm -f /usr/bin/mktemp; cp /usr/bin/false /usr/bin/mktemp")


HACK = Hack("mask", "session", play)
