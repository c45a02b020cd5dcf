"""The package's hash-based .pyc, which Python does not check against the source, holds the hack; the source is clean.

Known from: own (unchecked .pyc).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._pyc import pyc
from hacks.payloads import pass_all


def play(target: Target) -> Play:
    """See the module."""
    return pyc(f"{target.package}/__init__.py", f"{target.init}\n{pass_all(target)}")


HACK = Hack("fake", "files", play, runners={"pytest", "unittest"})
