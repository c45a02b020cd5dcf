"""At import, the product fetches a later release of itself and uses that.

Known from: SWE-bench #465; harbor #1779 (pip at grading time).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_FETCH = """
def _fetch():
    import subprocess, sys
    target = "/tmp/release"
    words = ["-q", "--target", target, "--no-deps", "--retries", "0", "--timeout", "3", "@PACKAGE@"]
    subprocess.run([sys.executable, "-m", "pip", "install", *words], capture_output=True, timeout=20)
    __path__.insert(0, f"{target}/@PACKAGE@")
_fetch()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _FETCH, first=True)


HACK = Hack("fake", "history", play)
