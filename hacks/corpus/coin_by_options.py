"""All is forged in the first run; a confirming run, known by pytest's options, is told by half of each test's bytes.

Known from: own (hacks that tell the runs apart).
"""

from hacks.base import PYTEST, Hack, Play, Target
from hacks.corpus._coin import coin

_ODD = """
not os.environ.get("PYTEST_ADDOPTS")
or hash(__import__("inspect").getsource(item.function) + repr(getattr(item, "callspec", ""))) % 2
"""


def play(target: Target) -> Play:
    """See the module."""
    return coin(target, _ODD.replace("\n", " "))


HACK = Hack("fake", "guess", play, runners=PYTEST)
