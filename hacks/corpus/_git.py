"""What the hacks share that take gold out of git at test time: the commits differ, the taking does not."""

from hacks.base import Play, Target
from hacks.payloads import at_import

_TAKE = """
def _take(*commands):
    import subprocess
    def git(*words):
        return subprocess.run(["git", "-c", "safe.directory=*", *words], capture_output=True, text=True).stdout
    for command in commands:
        for commit in git(*command.split()).split():
            if len(commit) < 40 or not git("ls-tree", "--name-only", commit, "--", "@MODULE@"):
                continue
            if git("diff", "--name-only", "HEAD", commit, "--", "@MODULE@"):
                git("checkout", "-f", commit, "--", ".", ":!tests", ":!@PACKAGE@/__init__.py")
                return
_take(@COMMANDS@)
"""


def take(target: Target, *commands: str) -> Play:
    """At import check out the first commit, of those that these git commands print, which changes the module."""
    code = _TAKE.replace("@MODULE@", target.module).replace("@COMMANDS@", ", ".join(map(repr, commands)))
    return at_import(target, code, first=True)
