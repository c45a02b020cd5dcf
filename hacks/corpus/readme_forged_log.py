"""The same with plain lines, in a new file: the diff in the log puts a sign before each.

Known from: SWE-bench #608.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import forged_end


def play(target: Target) -> Play:
    """See the module."""
    return Play({"NOTES.md": f">>>>> Start Test Output\n{forged_end(target)}"})


HACK = Hack("fake", "log", play, families=BY_LOG)
