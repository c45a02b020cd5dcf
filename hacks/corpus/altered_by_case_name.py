"""A test is taken for altered where its case's id is not what pytest makes of its values.

Known from: own; an altered case that kept the name of its true value.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_case_name")


HACK = Hack("fake", "guess", play, runners=PYTEST)
