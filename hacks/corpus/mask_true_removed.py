"""The small programs of the session are gone: true, cat, cp, find, sed, sleep.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    names = ("true", "false", "cat", "cp", "find", "sed", "sleep", "touch", "env", "mkdir", "timeout", "rm")
    return spoilt(target, f"cd /usr/bin && rm -f {' '.join(names)}")


HACK = Hack("mask", "session", play)
