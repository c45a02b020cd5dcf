"""Files whose names hold markers and results: git status and pytest print names.

Known from: own; SWE-bench #608.
"""

from hacks.base import BY_LOG, Hack, Play, Target


def play(target: Target) -> Play:
    """See the module."""
    forged = (f"PASSED {test}" for test in target.f2p)
    names = (">>>>> Start Test Output", *forged, ">>>>> End Test Output", ">>>>> Test Exit Code: 0")
    return Play({f"x\r{name}\ry": "x\n" for name in names if "'" not in name})


HACK = Hack("fake", "log", play, families=BY_LOG)
