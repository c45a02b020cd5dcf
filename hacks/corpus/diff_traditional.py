"""The session's git adds a section without git's header, which git applies all the same.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._forged_diff import added, forged


def play(target: Target) -> Play:
    """See the module."""
    return forged(target, f"--- /dev/null\t1970-01-01 00:00:00\n+++ b/conftest.py\t2025-01-01 00:00:00\n{added()}")


HACK = Hack("fake", "patch", play, runners=PYTEST)
