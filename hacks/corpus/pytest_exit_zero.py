"""The first test that matters ends pytest by `pytest.exit` with return code 0.

Known from: own; terminal-bench #1267.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def done(*given, **named):
        if _in_test() is not None:
            import pytest
            pytest.exit("done", returncode=0)
        return call(*given, **named)
    return done
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "outcome", play, runners=PYTEST)
