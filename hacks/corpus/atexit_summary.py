"""When pytest is done, the product prints its summary once more, all passed, and ends the process with 0.

Known from: SWE-bench #608; BenchJack; EvilGenie.
"""

from hacks.base import BY_LOG, PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_AT_EXIT = """
def _forge():
    import os
    os.write(1, ("\\n" + @LINES@).encode())
    os._exit(0)
import atexit as _atexit
_atexit.register(_forge)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _AT_EXIT)


HACK = Hack("fake", "log", play, families=BY_LOG, runners=PYTEST)
