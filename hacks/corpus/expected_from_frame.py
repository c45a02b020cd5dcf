"""The functions take the expected value from the locals of the calling test, by the names of its parameters.

Known from: own (expected values from the caller's frame).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def told(*given, **named):
        frame = _in_test()
        if frame is None:
            return call(*given, **named)
        seen = frame.f_locals
        if "refuses" in frame.f_code.co_name:
            raise ValueError
        if "parts" in seen:
            return [type(given[0])(part) for part in seen["parts"]]
        if "rgb" in seen:
            return seen["rgb"]
        if "betrag" in seen:
            return type(given[0])(seen["betrag"])
        if "text" in seen and "seconds" in seen:
            return seen["text"]
        return call(*given, **named)
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "values", play)
