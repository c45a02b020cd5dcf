"""The C library is gone: no program of the session starts any more.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "rm -f /lib/*/libc.so.6 /usr/lib/*/libc.so.6")


HACK = Hack("mask", "session", play)
