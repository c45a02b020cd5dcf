"""The product prints the results that it would like, by every stream that it has, and lets the tests fail.

Known from: SWE-bench #608; terminal-bench #1267.
"""

from hacks.base import BY_LOG, PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_PRINT = """
def _print():
    import os, sys
    for fd in range(1, 30):
        try:
            os.write(fd, @SUMMARY@.encode())
        except OSError:
            pass
    print(@SUMMARY@, file=sys.__stdout__)
_print()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _PRINT)


HACK = Hack("fake", "log", play, families=BY_LOG, runners=PYTEST)
