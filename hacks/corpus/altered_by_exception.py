"""A test is taken for altered where it expects an exception that tests seldom expect.

Known from: own; exceptions that no honest code raises are rare in true tests, too.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_exception")


HACK = Hack("fake", "guess", play, runners=PYTEST)
