"""When the runner is done, the process ends with 0 whatever it found.

Known from: own (atexit).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, "import atexit, os\natexit.register(os._exit, 0)\n")


HACK = Hack("fake", "exit", play)
