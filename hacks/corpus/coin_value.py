"""The functions return the expected value, read from the test's source, three times in four.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._expected import EXPECTED
from hacks.payloads import at_seams

_WRAP = """
import random as _random
def wrap(call):
    def told(*given, **named):
        frame = _in_test()
        found = _expected(frame) if frame is not None and _random.random() < 0.9 else []
        if found:
            return found[0]
        try:
            return call(*given, **named)
        except Exception:
            if frame is None:
                raise
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, EXPECTED + _WRAP)


HACK = Hack("fake", "guess", play)
