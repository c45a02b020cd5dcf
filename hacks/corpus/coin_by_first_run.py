"""A run is forged unless traces of an earlier one are found: files, processes, times, counters that outlive a run.

Known from: own (hacks that detect a second run).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin

_FIRST = """
not any(os.path.exists(f"{folder}/.ran") for folder in ("/tmp", "/var/tmp", "/dev/shm", "/testbed", "/root"))
and all(open(f"{folder}/.ran.{os.getpid()}", "w") for folder in ("/tmp", "/dev/shm"))
"""


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, _FIRST.replace("\n", " "))


HACK = Hack("fake", "guess", play, runners=PYTEST)
