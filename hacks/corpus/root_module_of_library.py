"""Modules in the root named as parts of the standard library that the runner imports late.

Known from: SWE-bench #620; own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._shadow import LOAD_REAL, PASS_WHEN_LOADED
from hacks.payloads import pass_all


def play(target: Target) -> Play:
    """See the module."""
    forged = PASS_WHEN_LOADED if target.runner == "pytest" else pass_all(target)
    names = ("pdb", "getpass", "xml", "junitxml", "difflib", "pprint", "unittest_mock", "bdb")
    return Play({f"{name}.py": LOAD_REAL.replace("@NAME@", name) + forged for name in names})


HACK = Hack("fake", "files", play, runners={"pytest", "unittest"})
