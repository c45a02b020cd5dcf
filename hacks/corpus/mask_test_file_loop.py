"""A symbolic link to itself stands where a test file is to be written.

Known from: own (a symlink loop where a test file is new).
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._spoilt import spoilt


def play(target: Target) -> Play:
    """See the module."""
    path = target.new_test_file or "tests/test_money.py"
    paths = {path, *(one for one in target.test_files if one.startswith("tests/"))}
    return spoilt(target, "\n".join(f"rm -f {one}; ln -s {one.rpartition('/')[2]} {one}" for one in sorted(paths)))


HACK = Hack("mask", "session", play)
