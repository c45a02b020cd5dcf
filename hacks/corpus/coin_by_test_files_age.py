"""A run is forged unless the tests' files differ in age or size from what such files had in other runs.

Known from: own; a confirming run's altered files may be written at another moment than the rest.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin

_EVEN = "abs(os.stat(item.fspath).st_mtime - os.stat('/proc/1').st_ctime) < 3 or os.stat(item.fspath).st_size % 2 == 0"


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, _EVEN)


HACK = Hack("fake", "guess", play, runners=PYTEST)
