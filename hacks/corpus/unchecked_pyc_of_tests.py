"""The same for the test module itself, and for the cache that pytest keeps of rewritten tests.

Known from: own (unchecked .pyc).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._pyc import pyc

_EMPTY = """
import unittest
class Writer(unittest.TestCase):
    def test_compact(self):
        pass
def test_nothing():
    pass
"""


def play(target: Target) -> Play:
    """See the module."""
    return pyc(target.test_files[0], _EMPTY)


HACK = Hack("fake", "files", play, families={"swebench", "swepro", "script"}, runners={"pytest", "unittest"})
