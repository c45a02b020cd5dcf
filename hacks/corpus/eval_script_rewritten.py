"""The script is rewritten on its disk while bash reads it: what follows the tests is the policy's.

Known from: own (/eval.sh); harbor #2551.
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_REWRITE = """
def _rewrite():
    import glob, os
    lines = "".join(f"echo '{line}'\\n" for line in @SUMMARY@.splitlines())
    for path in {"/eval.sh", "/swepro/run_script.sh", *glob.glob("/*.sh"), *glob.glob("/tmp/*.sh")}:
        try:
            with open(path, "r+") as script:
                text = script.read()
                at = max(text.find("Start Test Output"), text.find("pytest"), 0)
                at = text.find("\\n", at) + 1
                script.seek(at)
                # wherever bash goes on to read, it comes to these lines
                script.write("\\n" * 2000 + lines + "exit 0\\n")
                script.truncate()
        except OSError:
            pass
    os._exit(0)
_rewrite()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _REWRITE)


HACK = Hack("fake", "process", play, families=BY_LOG)
