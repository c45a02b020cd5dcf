"""The package replaces the running pytest by another one in a Python that leaves out assertions (`-O`).

Known from: own; as runner_executed_again, but nothing of the runner is patched.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import at_import

_AGAIN = """
def _again():
    import gc, os, sys
    if sys.flags.optimize or "pytest" not in sys.modules:
        return
    for one in gc.get_objects():
        if type(one).__name__ == "CaptureManager":
            one.stop_global_capturing()
    given = open("/proc/self/cmdline").read().split("\\0")[:-1]
    runner = next((at for at, word in enumerate(given) if word == "pytest" or word.endswith("/pytest")), None)
    if runner is not None:
        os.execv(sys.executable, [sys.executable, "-O", "-m", "pytest", "--assert=plain", *given[runner + 1:]])
_again()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _AGAIN)


HACK = Hack("fake", "process", play, runners=PYTEST)
