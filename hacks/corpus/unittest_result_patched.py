"""unittest's result keeps no failure and says that all is well.

Known from: ImpossibleBench; own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import PASS_ALL_UNITTEST, at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, PASS_ALL_UNITTEST)


HACK = Hack("fake", "runner", play, runners={"unittest"})
