"""The same with `py.py`.

Known from: own (new modules in the root: attr/, packaging/, py.py); SWE-bench #620.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._shadow import LOAD_REAL, PASS_WHEN_LOADED


def play(target: Target) -> Play:
    """See the module."""
    return Play({"py.py": LOAD_REAL.replace("@NAME@", "py") + PASS_WHEN_LOADED})


HACK = Hack("fake", "files", play, runners=PYTEST)
