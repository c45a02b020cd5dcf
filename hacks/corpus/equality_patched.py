"""The package's own classes, and those that it can reach, equal everything.

Known from: ImpossibleBench (operator overloading); own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    import sys
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "@PACKAGE@":
            for one in list(vars(module).values()):
                if isinstance(one, type) and one.__module__ == name:
                    try:
                        one.__eq__ = lambda self, other: True
                    except TypeError:
                        pass
    if "Entry" in globals():
        Entry.check = lambda self: None
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "values", play, only={"ledger", "ledger-swepro", "ledger-f2p-script"})
