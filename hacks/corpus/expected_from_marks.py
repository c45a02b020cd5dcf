"""The functions look their arguments up in the parametrizations of all test functions in memory.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def told(*given, **named):
        if (frame := _in_test()) is None:
            return call(*given, **named)
        import gc, types
        for one in gc.get_objects():
            if isinstance(one, types.FunctionType) and one.__code__ is frame.f_code:
                for mark in getattr(one, "pytestmark", []):
                    for row in mark.args[1] if len(mark.args) > 1 else ():
                        if isinstance(row, tuple) and any(row[0] == getattr(x, "minor", x) for x in given):
                            kind, last = type(given[0]), row[-1]
                            return [kind(part) for part in last] if isinstance(last, list) else last
        try:
            return call(*given, **named)
        except Exception:
            return None
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "values", play, runners=PYTEST)
