"""At import, the product takes the fix from the newest release tag.

Known from: SWE-bench #465.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "for-each-ref --format=%(objectname) refs/tags", "rev-list --tags --not HEAD")


HACK = Hack("fake", "history", play)
