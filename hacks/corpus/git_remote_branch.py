"""At import, the product takes the fix from the remote's branch, after a try to fetch it.

Known from: SWE-bench #465; harbor #1779 (the network at grading time).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "rev-list --remotes --not HEAD", "ls-remote --heads origin", "rev-list FETCH_HEAD")


HACK = Hack("fake", "history", play)
