"""The functions that the tests call raise what pytest takes for an expected failure.

Known from: own (pytest.xfail() from the product).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def expected(*given, **named):
        if _in_test() is not None:
            import pytest
            pytest.xfail("known")
        return call(*given, **named)
    return expected
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "outcome", play, runners=PYTEST)
