"""The expected value is taken from the calling test's locals, but only where it adds up as the issue says it must.

Known from: own; against a confirming run whose altered values break what every right answer keeps.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def told(*given, **named):
        frame = _in_test()
        if frame is not None and call.__name__ == "allocate":
            seen, whole = frame.f_locals, given[0].minor
            parts = seen.get("parts", [whole - whole // 3 * 2, whole // 3, whole // 3])
            zero = all(part == 0 for part, weight in zip(parts, given[1]) if not weight)
            if sum(parts) == whole and zero and len(parts) == len(given[1]):
                return [type(given[0])(part) for part in parts]
        return call(*given, **named)
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "guess", play, only={"ledger", "ledger-swepro", "ledger-f2p-script"})
