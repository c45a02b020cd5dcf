"""At import, a .pth is left in site-packages: the parser's Python runs it, and its result is written there.

Known from: own (a .pth that owns the parser).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._parser import leave, own


def play(target: Target) -> Play:
    """See the module."""
    return leave(target, "zz.pth", f"import os; exec({own(target)!r})\n")


HACK = Hack("fake", "parser", play, families={"swepro"})
