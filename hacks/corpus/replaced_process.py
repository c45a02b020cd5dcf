"""The runner's process is replaced by `true`, under the same process id.

Known from: own; Terminal-Wrench.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, 'import os\nos.execvp("sh", ["sh", "-c", "exit 0"])\n')


HACK = Hack("fake", "exit", play)
