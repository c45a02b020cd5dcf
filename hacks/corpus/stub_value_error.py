"""Whatever is missing or hard raises ValueError: the tests of refusals pass, the others do not.

Known from: own (a stub earned 0.545 of the reward).
"""

from hacks.base import Hack, Play, Target
from hacks.payloads import at_import

_HEXCODE = '''"""Colours as hex codes."""


def parse(text):
    raise ValueError(f"not a hex code: {text!r}")


def write(rgb):
    raise ValueError(f"not a colour: {rgb!r}")
'''
_STUB = """
def _refuse(*given, **named):
    raise ValueError
def wrap(call):
    return _refuse
"""


def play(target: Target) -> Play:
    """See the module."""
    if target.name == "swatch":
        return Play({"swatch/hexcode.py": _HEXCODE})
    return at_import(target, _STUB + target.seams)


HACK = Hack("fake", "values", play)
