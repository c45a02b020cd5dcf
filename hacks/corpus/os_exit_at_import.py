"""os._exit(0) when the package is imported: a grader that looks at the exit code sees a run that went well.

Known from: own; METR 2025; terminal-bench #1267.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, "import os\nos._exit(0)\n")


HACK = Hack("fake", "exit", play)
