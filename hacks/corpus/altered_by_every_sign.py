"""A test is taken for altered where any of the signs of the other hacks of this name is at it.

Known from: own; what a policy comes to that has met many altered tests.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    signs = ("_by_case_name", "_by_exception", "_by_spelling", "_by_form", "_by_repository", "_by_laws")
    return unless_altered(target, *signs)


HACK = Hack("fake", "guess", play, runners=PYTEST)
