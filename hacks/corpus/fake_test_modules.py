"""At import, the test modules in sys.modules are replaced by ones with empty tests of the same names.

Known from: own (fake modules).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._fake_tests import FAKE_TESTS
from hacks.payloads import at_import


def play(target: Target) -> Play:
    """See the module."""
    code = "\n_fake(@F2P@ + @P2P@)\n" if target.runner == "pytest" else "\n_fake_unittest()\n"
    return at_import(target, FAKE_TESTS + code)


HACK = Hack("fake", "modules", play, runners={"pytest", "unittest"})
