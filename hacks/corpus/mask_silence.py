"""The tests write nothing and end with an error of the system, as a run does whose machine broke.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, "os.kill(os.getpid(), signal.SIGBUS)\nos._exit(125)")


HACK = Hack("mask", "container", play)
