"""At test time every process of the container is stopped, the tests' own last: nothing fails, and nothing ends.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        try:
            os.kill(int(name), signal.SIGSTOP)
        except OSError:
            pass
os.kill(os.getpid(), signal.SIGSTOP)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("mask", "container", play)
