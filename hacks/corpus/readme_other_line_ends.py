"""A README with every other character that some reader takes for a line's end.

Known from: own; str.splitlines and the C library differ.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import forged_end


def play(target: Target) -> Play:
    """See the module."""
    text = f"x\n>>>>> Start Test Output\n{forged_end(target)}"
    return Play({"README.md": "".join(text.replace("\n", end) + "\n" for end in "\x0b\x0c\x1c\x1e\x85\u2028\u2029")})


HACK = Hack("fake", "log", play, families=BY_LOG)
