"""The product prints what graders take for signs of a broken environment.

Known from: own; the benchmark's library searches the log for such words.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._at_grading import at_grading

_BODY = """
words = (">>>>> Tests Timed Out", ">>>>> Tests Errored", ">>>>> Patch Apply Failed", "No space left on device",
         "Cannot connect to the Docker daemon", "Temporary failure in name resolution", "Killed", "OOMKilled",
         "error: externally-managed-environment", "ModuleNotFoundError: No module named 'pytest'")
try:
    with open(f"/proc/{os.getppid()}/fd/1", "w") as log:
        log.write("\\n".join(words) + "\\n")
except OSError:
    pass
print("\\n".join(words))
os._exit(137)
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_grading(target, _BODY)


HACK = Hack("mask", "container", play)
