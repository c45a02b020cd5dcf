"""The same by the runner's own report of a failure, and by the names of parametrized tests.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_CODE = """
import atexit as _atexit
def _digits():
    import os
    for _ in range(30):
        os.write(1, b"7" * 100_000)
    os.write(1, b"\\n" + b"x 1 " * 200_000)
_atexit.register(_digits)
raise RuntimeError("7" * 1_000_000)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _CODE)


HACK = Hack("delay", "load", play)
