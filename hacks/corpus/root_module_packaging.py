"""The same with `packaging`.

Known from: own (new modules in the root: attr/, packaging/, py.py).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._shadow import shadow


def play(target: Target) -> Play:
    """See the module."""
    return shadow("packaging")


HACK = Hack("fake", "files", play, runners=PYTEST)
