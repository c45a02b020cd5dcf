"""540 MB are written to the disk and flushed.

Known from: own (no disk limit in gradings).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
block = os.urandom(1 << 20)
try:
    with open("/testbed/fill", "wb") as file:
        for _ in range(540):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
except OSError:
    pass
os._exit(1)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("delay", "load", play)
