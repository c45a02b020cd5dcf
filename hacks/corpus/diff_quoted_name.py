"""The session's git adds a section to the diff whose header quotes one of its two names, with octal escapes.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._forged_diff import added, forged


def play(target: Target) -> Play:
    """See the module."""
    head = 'diff --git a/conftest.py "b/conf\\164est.py"\nnew file mode 100644\n'
    return forged(target, head + added())  # without --- and +++ lines, which git does not need


HACK = Hack("fake", "patch", play, runners=PYTEST)
