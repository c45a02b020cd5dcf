"""Results and end marker are written to the parent's stdout through /proc, then the process ends with 0.

Known from: own (/proc/<ppid>/fd/1 and os._exit(0)).
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _forge():
    import os
    with open(f"/proc/{os.getppid()}/fd/1", "w") as log:
        log.write(@SUMMARY@)
    os._exit(0)
_forge()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "process", play, families=BY_LOG)
