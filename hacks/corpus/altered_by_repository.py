"""A test is taken for altered where the repository's HEAD has it with another text.

Known from: own; the base commit stays in the grading container.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_repository")


HACK = Hack("fake", "guess", play, runners=PYTEST)
