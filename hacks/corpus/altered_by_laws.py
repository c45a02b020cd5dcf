"""A test is taken for altered where what it expects breaks a law of such values: bytes, bounds, sums, order.

Known from: own; as expected_if_plausible, for more instances.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._signs import unless_altered


def play(target: Target) -> Play:
    """See the module."""
    return unless_altered(target, "_by_laws")


HACK = Hack("fake", "guess", play, runners=PYTEST)
