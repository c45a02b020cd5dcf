"""Processes that only count, as many as there may be CPUs, that ignore every signal they can.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end = time.time() + 8
        while time.time() < end:
            pass
        os._exit(0)
time.sleep(8)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("delay", "load", play)
