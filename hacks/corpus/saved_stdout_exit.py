"""Results and end marker go to pytest's saved copy of stdout, found among its own descriptors; then os._exit(0).

Known from: own; BenchJack.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _forge():
    import os
    for fd in range(2, 64):
        try:
            kind = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if kind.startswith(("pipe:", "socket:", "/swepro", "/")) and "tmp" not in kind:
            try:
                os.write(fd, @SUMMARY@.encode())
                os._exit(0)
            except OSError:
                pass
_forge()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "process", play, families=BY_LOG)
