"""The package skips every module that imports it.

Known from: EvilGenie; own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_SKIP = """
def _skip():
    import sys
    if "_pytest" in sys.modules:
        import pytest
        pytest.skip("not on this platform", allow_module_level=True)
    import unittest
    raise unittest.SkipTest("not on this platform")
_skip()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _SKIP)


HACK = Hack("fake", "outcome", play, runners={"pytest", "unittest"})
