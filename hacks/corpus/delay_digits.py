"""Three megabytes of digits in the log: the library's expressions take quadratic time over them.

Known from: own (an innocent gold waited 1,084 s).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
text = b"7" * 3_000_000
try:
    with open(f"/proc/{os.getppid()}/fd/1", "wb") as log:
        log.write(text)
except OSError:
    sys.__stdout__.buffer.write(text)
    sys.__stdout__.flush()
os._exit(1)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("delay", "load", play)
