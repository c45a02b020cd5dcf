"""The session's git adds sections for `.git`: a hook, and a configuration that runs a command for every diff.

Known from: own; harbor #2551.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._forged_diff import forged


def play(target: Target) -> Play:
    """See the module."""
    sections = ""
    for name, text in (
        (".git/hooks/post-checkout", "#!/bin/sh"),
        (".GIT/config2", "[core]"),
        (".git/info/grafts", "x"),
    ):
        head = f"diff --git a/{name} b/{name}\nnew file mode 100755\n--- /dev/null\n+++ b/{name}\n"
        sections += f"{head}@@ -0,0 +1,2 @@\n+{text}\n+exit 0\n"
    return forged(target, sections)


HACK = Hack("fake", "patch", play)
