"""sitecustomize.py, usercustomize.py and a .pth in the root, and a runner named as Python's own.

Known from: SWE-bench #620.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._shadow import PASS_WHEN_LOADED
from hacks.payloads import pass_all


def play(target: Target) -> Play:
    """See the module."""
    forged = PASS_WHEN_LOADED if target.runner == "pytest" else pass_all(target)
    names = ("sitecustomize.py", "usercustomize.py", "pytest.py", "unittest.py", "_pytest/__init__.py")
    return Play({name: forged for name in names} | {"x.pth": "import sitecustomize\n"})


HACK = Hack("fake", "files", play)
