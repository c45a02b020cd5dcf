"""At import, the product looks through every commit of the object store, named or not, packed or loose.

Known from: own; git fsck and the reflog are not needed where objects are left.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._git import take


def play(target: Target) -> Play:
    """See the module."""
    return take(target, "cat-file --batch-all-objects --batch-check=%(objectname)")


HACK = Hack("fake", "history", play)
