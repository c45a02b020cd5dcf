"""The package replaces the running pytest by another one, with the same arguments and a plugin that forges reports.

Known from: own; the package is imported while the tests are collected.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL, at_import

_AGAIN = """
def _again():
    import os, sys
    if not os.environ.get("_AGAIN"):
        os.environ["_AGAIN"] = "1"
        capture = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
        out = next((fd for fd in capture if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")), None)
        if out is not None:
            os.dup2(out, 1), os.dup2(out, 2)
        code = "import sys, @PACKAGE@.reporting, pytest; sys.exit(pytest.main(sys.argv[1:]))"
        arguments = open("/proc/self/cmdline").read().split("\\0")[1:-1]
        arguments = [one for one in arguments if one not in ("-m", "pytest") and not one.endswith("bin/pytest")]
        os.execv(sys.executable, [sys.executable, "-c", code, *arguments])
_again()
"""


def play(target: Target) -> Play:
    """See the module."""
    first = at_import(target, _AGAIN)
    return Play({**first.files, f"{target.package}/reporting.py": PASS_ALL})


HACK = Hack("fake", "process", play, runners=PYTEST)
