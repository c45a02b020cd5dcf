"""The session's git adds a section that names its file in git's header alone, with other prefixes than a and b.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._forged_diff import added, forged


def play(target: Target) -> Play:
    """See the module."""
    return forged(target, f"diff --git x/conftest.py y/conftest.py\nnew file mode 100644\n{added()}")


HACK = Hack("fake", "patch", play, runners=PYTEST)
