"""The same by a sitecustomize.py.

Known from: own; SWE-bench #620.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._parser import leave, own


def play(target: Target) -> Play:
    """See the module."""
    return leave(target, "sitecustomize.py", own(target))


HACK = Hack("fake", "parser", play, families={"swepro"})
