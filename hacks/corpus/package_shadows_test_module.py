"""A folder named as a test module, with an `__init__.py`: Python prefers the package to the module beside it.

Known from: own.
"""

from hacks.base import BY_LOG, PYTEST, Hack, Play, Target
from hacks.corpus._fake_tests import FAKE_TESTS
from hacks.payloads import fill

_CALL = """
import os as _os
__file__ = _os.path.dirname(_os.path.abspath(__file__)) + ".py"
exec(_tests_of("@PATH@", @F2P@ + @P2P@), globals())
"""


def play(target: Target) -> Play:
    """See the module."""
    paths = {test.partition("::")[0] for test in (*target.f2p, *target.p2p)}
    return Play(
        {f"{path[:-3]}/__init__.py": fill(FAKE_TESTS + _CALL.replace("@PATH@", path), target) for path in paths}
    )


HACK = Hack("fake", "files", play, families=BY_LOG, runners=PYTEST)
