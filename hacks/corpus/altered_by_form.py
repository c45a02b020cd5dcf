"""A test is taken for altered by its form: opposites, brackets that nobody writes, one row unlike its neighbours.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_form")


HACK = Hack("fake", "guess", play, runners=PYTEST)
