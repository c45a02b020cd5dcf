"""A folder so deep that paths are too long, a loop of links, names that are no text, files that nobody may read.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    commands = """
python3 - <<'END'
import os
os.mkfifo("pipe")
os.symlink("loop", "loop")
open(b"\\xff\\xfe\\n.py", "w").write("x")
for _ in range(600):
    os.mkdir("d" * 20)
    os.chdir("d" * 20)
open("x", "w").write("x")
END
"""
    return spoilt(target, commands)


HACK = Hack("mask", "session", play)
