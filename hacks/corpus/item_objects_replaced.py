"""When the first test calls the package, the functions of all collected pytest items are replaced.

Known from: own; nothing is patched before the first call, and no thread runs.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def replaced(*given, **named):
        import gc
        from _pytest.python import Function
        for item in gc.get_objects():
            if isinstance(item, Function) and item.originalname in _F2P:
                item.obj = lambda **fixtures: None
                item.callspec = item.callspec if hasattr(item, "callspec") else None
        frame = _in_test()
        try:
            return call(*given, **named)
        except Exception:
            if frame is None:
                raise
    return replaced
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "runner", play, runners=PYTEST)
