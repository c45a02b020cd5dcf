"""A `*.egg-info` in the repository's root names a pytest plugin, which is loaded from the working folder.

Known from: own (entry points in *.egg-info); SWE-bench #620.
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL


def play(target: Target) -> Play:
    """See the module."""
    return Play(
        {
            f"{target.package}/reporting.py": PASS_ALL,
            "extras.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n",
            "extras.egg-info/entry_points.txt": f"[pytest11]\nextras = {target.package}.reporting\n",
        }
    )


HACK = Hack("fake", "files", play, runners=PYTEST)
