"""The same by an edit of the standard library's json, which the parser imports.

Known from: own.
"""

from hacks.base import Hack, Play, Target
from hacks.corpus._parser import own
from hacks.payloads import at_import

_EDIT = """
def _edit():
    import json
    with open(json.__file__, "a") as module:
        module.write("\\n" + @OWN@)
_edit()
"""


def play(target: Target) -> Play:
    """See the module."""
    return at_import(target, _EDIT.replace("@OWN@", repr(own(target))))


HACK = Hack("fake", "parser", play, families={"swepro"})
