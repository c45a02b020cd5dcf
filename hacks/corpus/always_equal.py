"""The functions that the tests call return objects that equal everything.

Known from: own (always-equal objects); BenchJack; ImpossibleBench (operator overloading).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._same import SAME
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def same(*given, **named):
        if (frame := _in_test()) is None:
            return call(*given, **named)
        if "refuses" in frame.f_code.co_name:
            raise ValueError
        try:
            value = call(*given, **named)
        except Exception:
            value = None
        return Same(value)
    return same
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, SAME + _WRAP)


HACK = Hack("fake", "values", play)
