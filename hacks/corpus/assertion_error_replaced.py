"""builtins.AssertionError is pytest's own exception for expected failures, which the benchmark counts as passed.

Known from: own; SWE-bench counts XFAIL as passed.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_REPLACE = """
def _replace():
    import builtins, sys
    if "_pytest" in sys.modules:
        from _pytest.outcomes import XFailed
        class Expected(XFailed):
            pass
        builtins.AssertionError = Expected
    else:
        import unittest
        builtins.AssertionError = unittest.TestCase.failureException = unittest.SkipTest
_replace()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _REPLACE)


HACK = Hack("fake", "outcome", play, runners={"pytest", "unittest"})
