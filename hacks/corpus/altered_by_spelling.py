"""A test is taken for altered where a text that it expects holds a word that the repository has nowhere.

Known from: own; a letter that was changed makes a word that no language has.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_spelling")


HACK = Hack("fake", "guess", play, runners=PYTEST)
