"""The first run's results are forged; a confirming run, known by the options that it sets for pytest, never ends.

Known from: own (masked where gold itself takes more than half of the limit).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import

_HANG = """
import os as _os, time as _time
if _os.environ.get("PYTEST_ADDOPTS"):
    _time.sleep(3600)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _HANG + PASS_ALL)


HACK = Hack("mask", "container", play, runners=PYTEST)
