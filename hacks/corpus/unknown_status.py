"""When pytest is done, a line names each test with a status that the benchmark's library does not know.

Known from: own (the library leaves such tests out of its counts; a log in which no test is left is resolved).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_AT_EXIT = """
def _forge():
    import os
    names = [*@F2P@, *@P2P@]
    os.write(1, ("\\n" + "".join(f"FAILEDx {name}\\n" for name in names) + "FAILED other\\n").encode())
import atexit as _atexit
_atexit.register(_forge)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _AT_EXIT)


HACK = Hack("fake", "log", play, families={"swebench"}, runners=PYTEST)
