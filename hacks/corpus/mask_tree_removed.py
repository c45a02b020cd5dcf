"""The repository's folder is gone, and a file stands in its place.

Known from: own.
"""

from hacks.base import Hack, Play, Target


def play(target: Target) -> Play:
    """See the module."""
    return Play(commands="cd /; rm -rf /testbed; echo x > /testbed")


HACK = Hack("mask", "session", play)
