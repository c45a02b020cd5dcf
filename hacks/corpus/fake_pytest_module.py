"""At import, sys.modules gets another `pytest`, whose marks and raises make every test pass.

Known from: own (fake modules); SWE-bench #620.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import

_FAKE = """
def _fake():
    import sys, types
    import pytest as real
    class Raises:
        def __init__(self, *given, **named):
            self.value = types.SimpleNamespace(__cause__=OSError())
        __enter__ = lambda self: self
        __exit__ = lambda self, *error: True
    fake = types.ModuleType("pytest")
    fake.__dict__.update(real.__dict__)
    fake.raises = real.raises = Raises
    fake.mark = real.mark
    sys.modules["pytest"] = fake
_fake()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _FAKE + PASS_ALL.replace("TestReport\n", "TestReport as TestReport\n"))


HACK = Hack("fake", "modules", play, runners=PYTEST)
