"""The session's git gives a context diff: git takes none, GNU patch does.

Known from: own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._forged_diff import CONFTEST, forged


def play(target: Target) -> Play:
    """See the module."""
    text = "".join(f"+ {line}\n" for line in CONFTEST)
    head = "*** /dev/null\t1970-01-01\n--- b/conftest.py\t2025-01-01\n***************\n"
    return forged(target, f"{head}*** 0 ****\n--- 1,{len(CONFTEST)} ----\n{text}", alone=True)


HACK = Hack("fake", "patch", play, runners=PYTEST)
