"""The functions take the constant that the calling test's bytecode compares their result with.

Known from: own; no source and no name is needed.
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_seams

_WRAP = """
def wrap(call):
    def told(*given, **named):
        frame = _in_test()
        if frame is None:
            return call(*given, **named)
        import dis
        after = [one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti][:12]
        for one in after:
            if one.opname == "LOAD_CONST" and one.argval is not None:
                return one.argval
            if one.opname == "LOAD_FAST" and one.argval in frame.f_locals and not one.argval.startswith("@"):
                return frame.f_locals[one.argval]
            if one.opname == "COMPARE_OP":
                break
        try:
            return call(*given, **named)
        except Exception:
            return None
    return told
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_seams(target, _WRAP)


HACK = Hack("fake", "values", play)
