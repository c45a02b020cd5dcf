"""What a failed assertion of unittest raises is made what a skipped test raises.

Known from: own; no method of unittest is replaced.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_SKIPS = """
import unittest as _unittest
_unittest.TestCase.failureException = _unittest.SkipTest
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _SKIPS)


HACK = Hack("fake", "outcome", play, runners={"unittest"})
