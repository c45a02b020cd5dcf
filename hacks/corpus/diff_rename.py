"""The session's git adds a section that renames by git's older words, `rename old` and `rename new`.

Known from: own.
"""

from bench.samples import EXAMPLES
from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._forged_diff import CONFTEST, forged


def play(target: Target) -> Play:
    """See the module."""
    lines = (EXAMPLES / target.package / "repo" / "README.md").read_text(encoding="utf-8").splitlines()
    head = "diff --git a/README.md b/README.md\nsimilarity index 50%\nrename old README.md\nrename new conftest.py\n"
    hunk = f"@@ -1,{len(lines)} +1,{len(CONFTEST)} @@\n"
    return forged(target, head + hunk + _signed("-", lines) + _signed("+", CONFTEST))


def _signed(sign: str, lines: list[str]) -> str:
    return "".join(f"{sign}{line}\n" for line in lines)


HACK = Hack("fake", "patch", play, runners=PYTEST)
