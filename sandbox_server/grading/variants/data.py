"""Variants of the tests' data files (snapshots, golden files, tables): a word or a number in them is changed.

Code that copies a test's expected value from such a file passes the test and fails its opposite, as correct code does.
A changed file tells them apart.
"""

import ast
import re
from doctest import DocTestParser
from random import Random

from sandbox_server.grading.variants.base import Edit, Source, Variant
from sandbox_server.grading.variants.finding import functions
from sandbox_server.grading.variants.lexing import SUFFIXES
from sandbox_server.grading.variants.literals import others

MOST = 8
"""Places tried in each file; each costs a run."""
MOST_BYTES = 256 << 10
"""Larger files stay as they are: each run of a certificate would have to upload them."""
_CODE = (".py", ".pyi", ".pyx", ".sh", ".c", ".h", ".cfg", ".toml", ".ini", *SUFFIXES)
_PLACE = re.compile(rb"""(?<![\w.\\-])(?:[A-Za-z]{3,40}|\d{1,15})(?![\w.]|["']?[ ]*:)""")
"""A whole word or number that is not a key."""


def is_data(path: str) -> bool:
    """Whether a file of that name holds neither code nor a configuration."""
    return not path.endswith(_CODE)


def is_read(path: str, text: bytes) -> bool:
    """Whether a file is Python without tests: code that tests import, or read (tests of formatters and linters)."""
    if not path.endswith(".py"):
        return False
    source = Source.of(path, text)
    return source is None or not functions(source)


def _wanted(text: str) -> set[int] | None:
    """Numbers (from 0) of the lines that a document's doctests expect as output; None if it has no doctests.

    Their input lines must not be changed: correct code may give the same output for another input.
    """
    try:
        examples = DocTestParser().get_examples(text)
    except ValueError:  # not a document after all
        return None
    if not examples:
        return None
    starts = ((one.lineno + one.source.count("\n"), one.want.count("\n")) for one in examples)
    return {line for start, count in starts for line in range(start, start + count)}


def variants_of_data(text: bytes, base: bytes, rng: Random) -> list[Variant]:
    """Up to `MOST` variants, each changing one place in the lines that the repository's `base` does not have.

    [] for a file of more than `MOST_BYTES`.
    """
    if len(text) > MOST_BYTES:
        return []
    there = set(base.split(b"\n"))
    wanted = _wanted(text.decode())
    places: list[tuple[int, int]] = []
    start = 0
    for number, line in enumerate(text.split(b"\n")):
        if line not in there and (wanted is None or number in wanted):
            places += [(start + found.start(), start + found.end()) for found in _PLACE.finditer(line)]
        start += len(line) + 1
    made = []
    for begin, end in rng.sample(places, min(MOST, len(places))):
        word = text[begin:end].decode()
        literal, value = (word, ast.Constant(int(word))) if word.isdigit() else (f'"{word}"', ast.Constant(word))
        for other in others(literal, value, rng)[:1]:
            made.append(Variant("value", (Edit(begin, end, other.strip('"')),), site=str(begin)))
    return made
