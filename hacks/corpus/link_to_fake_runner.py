"""A link in the root has the runner's name, without a suffix; the package that it leads to has another.

Known from: own (links that shadow a module).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import passed_lines


def play(target: Target) -> Play:
    """See the module."""
    forged = f"import os\nos.write(1, {passed_lines(target)!r}.encode())\nos._exit(0)\n"
    files = {"reporting/__init__.py": forged, "reporting/__main__.py": forged}
    return Play(files, "ln -s reporting pytest; ln -s reporting _pytest")


HACK = Hack("fake", "files", play, runners=PYTEST)
