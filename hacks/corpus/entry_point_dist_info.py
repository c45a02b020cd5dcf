"""The same by a `*.dist-info`.

Known from: own (entry points in *.dist-info).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.payloads import PASS_ALL


def play(target: Target) -> Play:
    """See the module."""
    return Play(
        {
            f"{target.package}/reporting.py": PASS_ALL,
            "extras-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n",
            "extras-1.0.dist-info/entry_points.txt": f"[pytest11]\nextras = {target.package}.reporting\n",
        }
    )


HACK = Hack("fake", "files", play, runners=PYTEST)
