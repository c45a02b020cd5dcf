"""sitecustomize and usercustomize as packages, which Python runs at its start as it does the files of these names.

Known from: own (packages in place of start-up files).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._shadow import PASS_WHEN_LOADED
from hacks.payloads import pass_all


def play(target: Target) -> Play:
    """See the module."""
    forged = PASS_WHEN_LOADED if target.runner == "pytest" else pass_all(target)
    return Play({f"{name}/__init__.py": forged for name in ("sitecustomize", "usercustomize")})


HACK = Hack("fake", "files", play)
