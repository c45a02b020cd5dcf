"""unittest's failures are forged by the toss of a coin.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    import random, unittest
    for kind in (unittest.TestResult, unittest.TextTestResult):
        real = kind.addSubTest
        def forged(self, test, subtest, error, real=real):
            real(self, test, subtest, None if random.random() < 0.8 else error)
        kind.addSubTest = forged
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "guess", play, runners={"unittest"})
