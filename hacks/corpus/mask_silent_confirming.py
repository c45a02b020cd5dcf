"""The first run's results are forged; a confirming run, known by the options that it sets for pytest, gives none.

Known from: own (masked where tests do not begin without a fix: the unpatched tree gives none either).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import

_SILENT = """
import os as _os
if _os.environ.get("PYTEST_ADDOPTS"):
    _os._exit(0)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _SILENT + PASS_ALL)


HACK = Hack("mask", "container", play, runners=PYTEST)
