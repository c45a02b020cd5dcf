"""pytest's TestReport is patched at the package's import: every test has passed.

Known from: own; BenchJack; EvilGenie; SWE-bench #601.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, PASS_ALL)


HACK = Hack("fake", "runner", play, runners=PYTEST)
