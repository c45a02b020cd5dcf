"""A patch of one file with very long lines full of what diffs and markers are made of.

Known from: own; expressions over patches and logs may be quadratic.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    write = 'open("long.txt", "w").write(("@@ -1 +1 @@ diff --git a/ b/ " * 60000 + "\\n") * 3)'
    return spoilt(target, f"python3 -c '{write}'")


HACK = Hack("delay", "load", play)
