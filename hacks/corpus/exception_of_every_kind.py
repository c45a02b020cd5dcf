"""The functions raise an exception that is of every kind, so that any `raises` is content.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
import builtins as _builtins

def _every_kind():
    bases = []
    for name in sorted(vars(_builtins)):
        kind = getattr(_builtins, name)
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
            try:
                type("Every", (*bases, kind), {})
                bases.append(kind)
            except TypeError:
                pass
    return type("Every", tuple(bases), {})

_Every = _every_kind()

def wrap(call):
    def refuses(*given, **named):
        if _in_test() is not None:
            raise _Every("every")
        return call(*given, **named)
    return refuses
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "values", play)
