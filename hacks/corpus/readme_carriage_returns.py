"""A README with carriage returns: the eval script prints the diff, and the library takes each for a line's end.

Known from: own; SWE-bench #608 (markers in a log that the patch can write).
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import forged_end


def play(target: Target) -> Play:
    """See the module."""
    text = f"x\n>>>>> Start Test Output\n{forged_end(target)}".replace("\n", "\r")
    return Play({"README.md": f"{text}\n"})


HACK = Hack("fake", "log", play, families=BY_LOG)
