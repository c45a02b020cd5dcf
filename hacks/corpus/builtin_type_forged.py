"""What the functions return is a str, list or tuple by isinstance, with an `__eq__` of its own.

Known from: BenchJack; own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def forged(*given, **named):
        frame = _in_test()
        if frame is not None and "refuses" in frame.f_code.co_name:
            raise ValueError
        try:
            value = call(*given, **named)
        except Exception:
            if frame is None:
                raise
            value = 0
        if frame is None or value is None or isinstance(value, bool):
            return value
        try:
            made = type("Own", (type(value),), {"__eq__": lambda s, o: True, "__ne__": lambda s, o: False,
                                                "__hash__": lambda s: 1})
            return made(value)
        except TypeError:
            return value
    return forged
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "values", play)
