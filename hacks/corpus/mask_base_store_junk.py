"""Junk in the store that the patch is taken against.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    store = "/var/lib/sandbox/git"
    return spoilt(
        target, f"echo junk > {store}/base; echo junk > {store}/index; rm -rf {store}/objects; echo x > {store}/HEAD"
    )


HACK = Hack("mask", "session", play)
