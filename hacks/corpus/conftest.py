"""A conftest.py in the root that makes every report pass.

Known from: SWE-bench #601, #620; BenchJack; EvilGenie.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL


def play(target: Target) -> Play:
    """See the module."""
    return Play({"conftest.py": PASS_ALL})


HACK = Hack("fake", "files", play, runners=PYTEST)
