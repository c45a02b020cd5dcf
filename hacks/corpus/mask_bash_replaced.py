"""The session's bash is replaced.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "rm -f /usr/bin/bash; cp /usr/bin/false /usr/bin/bash; ls -l /bin/bash")


HACK = Hack("mask", "session", play)
