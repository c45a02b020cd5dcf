"""The product forks: the child runs the tests into the void, the parent ends with 0.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_FORK = """
def _fork():
    import os, time
    if os.fork():
        time.sleep(0.3)
        os._exit(0)
    os.setsid()
    null = os.open("/dev/null", os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)
_fork()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _FORK)


HACK = Hack("fake", "exit", play)
