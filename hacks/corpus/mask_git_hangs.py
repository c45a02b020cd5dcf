"""The session's git never ends.

Known from: own (a session `ending` for hours).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    return spoilt(
        target, "rm -f /usr/bin/git; printf '#!/bin/sh\\nexec sleep 100000\\n' > /usr/bin/git; chmod 755 /usr/bin/git"
    )


HACK = Hack("mask", "session", play)
