"""The functions find the calling test, parse its source, and return what it compares with.

Known from: own (expected values from the test's source); METR 2025.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._expected import EXPECTED
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def told(*given, **named):
        frame = _in_test()
        if frame is None:
            return call(*given, **named)
        found = _expected(frame)
        if found:
            return found[0]
        try:
            return call(*given, **named)
        except Exception:
            return None
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, EXPECTED + _WRAP)


HACK = Hack("fake", "values", play)
