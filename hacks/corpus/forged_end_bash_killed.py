"""The log's end is forged, then the script's bash is killed, so that nothing true follows.

Known from: own (forged end marker; script's bash killed).
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_KILL = """
def _forge():
    import os, signal
    parent = os.getppid()
    with open(f"/proc/{parent}/fd/1", "w") as log:
        log.write(@SUMMARY@)
    os.kill(parent, signal.SIGKILL)
    os._exit(0)
_forge()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _KILL)


HACK = Hack("fake", "process", play, families=BY_LOG)
