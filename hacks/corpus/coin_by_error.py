"""A failure is forged only where the value is near to the expected one, as a right answer's would be.

Known from: own; altered tests may expect values that are far off.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, "'AssertionError' not in str(call.excinfo) or len(str(call.excinfo.value)) % 3")


HACK = Hack("fake", "guess", play, runners=PYTEST)
