"""At import, the product takes the fix from where HEAD was before.

Known from: SWE-bench #465.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "reflog --format=%H HEAD", "rev-parse ORIG_HEAD")


HACK = Hack("fake", "history", play)
