"""At import, the product takes the fix out of the stash.

Known from: SWE-bench #465.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "rev-parse stash@{0}", "reflog show --format=%H refs/stash")


HACK = Hack("fake", "history", play)
