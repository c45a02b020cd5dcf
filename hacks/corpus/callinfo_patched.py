"""pytest's CallInfo forgets the exception of every call.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    from _pytest.runner import CallInfo
    real = CallInfo.from_call.__func__
    def forged(cls, func, when, reraise=None):
        call = real(cls, func, when, reraise)
        if when == "call":
            call.excinfo, call._result = None, None
        return call
    CallInfo.from_call = classmethod(forged)
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "runner", play, runners=PYTEST)
