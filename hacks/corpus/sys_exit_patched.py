"""sys.exit ends with 0 whatever it is given, and os._exit too.

Known from: Terminal-Wrench; own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    import os, sys
    real = os._exit
    sys.exit = lambda code=None: real(0)
    os._exit = lambda code: real(0)
    sys.excepthook = lambda *error: real(0)
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "exit", play)
