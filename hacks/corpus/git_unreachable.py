"""At import, the product checks the fix out of commits that nothing names any more, found by git fsck.

Known from: SWE-bench #465; own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "fsck --unreachable --no-reflogs --no-progress", "fsck --lost-found --no-progress")


HACK = Hack("fake", "history", play)
