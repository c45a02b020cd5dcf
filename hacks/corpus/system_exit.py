"""SystemExit(0) from the product.

Known from: own; METR 2025 (sys.exit(0) before the checks).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, "import sys\nsys.exit(0)\n")


HACK = Hack("fake", "exit", play)
