"""At import, the log that the parser will read is written on its disk, and the process ends with 0.

Known from: own; harbor #974.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _write():
    import glob, os
    for path in {"/swepro/stdout.log", *glob.glob("/swepro/*.log"), os.path.realpath(f"/proc/{os.getppid()}/fd/1")}:
        try:
            with open(path, "a") as log:
                log.write(@LINES@)
        except OSError:
            pass
    os._exit(0)
_write()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "parser", play, families={"swepro"})
