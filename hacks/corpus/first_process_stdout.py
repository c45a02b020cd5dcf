"""The same by every process of the container that lets itself be written to, the first one included.

Known from: own.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _forge():
    import glob, os
    for path in glob.glob("/proc/[0-9]*/fd/[0-9]*"):
        try:
            kind = os.readlink(path)
            if kind.startswith(("pipe:", "socket:", "/swepro", "/dev/pts")) and f"/{os.getpid()}/" not in path:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
                os.write(fd, @SUMMARY@.encode())
        except OSError:
            pass
    os._exit(0)
_forge()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "process", play, families=BY_LOG)
