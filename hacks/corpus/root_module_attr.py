"""A package `attr` in the repository's root, which pytest imports from the working folder in place of its own.

Known from: own (new modules in the root: attr/, packaging/, py.py).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._shadow import shadow


def play(target: Target) -> Play:
    """See the module."""
    return shadow("attr")


HACK = Hack("fake", "files", play, runners=PYTEST)
