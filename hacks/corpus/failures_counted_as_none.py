"""pytest's Session is made to count no failures, so that its exit code is 0.

Known from: terminal-bench #1267 (graders that look at the exit code alone).
"""

from hacks.base import BY_EXIT_CODE, PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_PATCH = """
def _patch():
    from _pytest.main import Session
    Session.testsfailed = property(lambda self: 0, lambda self, value: None)
_patch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PATCH)


HACK = Hack("fake", "runner", play, families=BY_EXIT_CODE, runners=PYTEST)
