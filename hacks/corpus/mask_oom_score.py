"""At test time the first process is made the first to die, then memory is taken until somebody does.

Known from: own (oom_score_adj of PID 1).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
for pid in (1, os.getppid()):
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass
kept = []
while True:
    kept.append(bytearray(os.urandom(1 << 20)) * 16)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("mask", "container", play)
