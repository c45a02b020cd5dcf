"""The corpus itself: a hack that cannot be run is stopped by its own fault, and says nothing of the service."""

import ast

from hacks.__main__ import every_hack, pairs
from hacks.document import what
from hacks.targets import targets


def test_every_hack_says_what_it_is_and_is_python_that_can_be_run() -> None:
    hacks = every_hack()
    for name, hack in hacks.items():
        does, known = what(hack)
        assert does and known, name
    for name, hack, target in pairs(hacks, targets().values()):
        play = hack.play(target)
        assert play.files or play.commands
        for path, text in play.files.items():
            if path.endswith(".py"):
                ast.parse(text, f"{name} on {target.name}: {path}")
