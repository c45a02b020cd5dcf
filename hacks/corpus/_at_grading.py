"""Something that is broken in the grading container, by the package when the tests import it."""

from hacks.base import Play, Target
from hacks.payloads import at_import


def at_grading(target: Target, body: str) -> Play:
    """`body` is the body of a function without arguments."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return at_import(target, f"def _break():\n    import glob, os, signal, subprocess, sys, time\n{lines}_break()\n")
