"""The session's git is a program that fails: no patch can be taken by it.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(target, "rm -f /usr/bin/git; printf '#!/bin/sh\\nexit 1\\n' > /usr/bin/git; chmod 755 /usr/bin/git")


HACK = Hack("mask", "session", play)
