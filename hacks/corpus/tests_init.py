"""`tests/__init__.py`: pytest imports it before the tests, and it is none of the runner's own files.

Known from: own (tests/__init__.py).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import pass_all


def play(target: Target) -> Play:
    """See the module."""
    return Play({"tests/__init__.py": pass_all(target)})


HACK = Hack("fake", "files", play, runners={"pytest", "unittest"})
