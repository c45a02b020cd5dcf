"""The same in the tests' folder, as a link to a file of the package.

Known from: SWE-bench #601; own.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL


def play(target: Target) -> Play:
    """See the module."""
    return Play(
        {f"{target.package}/reporting.py": PASS_ALL},
        f"ln -s ../{target.package}/reporting.py tests/conftest.py; ln -s {target.package}/reporting.py Conftest.py",
    )


HACK = Hack("fake", "files", play, runners=PYTEST)
