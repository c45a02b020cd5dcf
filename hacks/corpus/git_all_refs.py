"""At import, the product checks the fix out of whatever commit git still names: branches, tags, remotes, reflogs.

Known from: SWE-bench #465 (agents looked at later commits of the repository).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "rev-list --all --reflog --not HEAD")


HACK = Hack("fake", "history", play)
