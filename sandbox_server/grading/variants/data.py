"""Variants of the tests' files of data: snapshots, golden files, tables. A word or a number in them is changed.

Code that takes what a test expects from such a file passes the test, and fails its opposite too.
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
"""Larger files stay as they are: each run of a certificate would be sent them."""
_CODE = (".py", ".pyi", ".pyx", ".sh", ".c", ".h", ".cfg", ".toml", ".ini", *SUFFIXES)
_PLACE = re.compile(rb"""(?<![\w.\\-])(?:[A-Za-z]{3,40}|\d{1,15})(?![\w.]|["']?[ ]*:)""")
"""A whole word or number that is no key."""


def is_data(path: str) -> bool:
    """Whether a file of that name holds neither code nor a configuration."""
    return not path.endswith(_CODE)


def is_read(path: str, text: bytes) -> bool:
    """Whether it is Python without tests: code that tests read, as those of formatters and linters do, or import."""
    if not path.endswith(".py"):
        return False
    source = Source.of(path, text)
    return source is None or not functions(source)


def _wanted(text: str) -> set[int] | None:
    """The lines that a document's doctests expect as output, from 0; None if it has none: then all lines say something.

    With another input than the test's, right code may well give the same.
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
    """Up to `MOST` variants, each of one place in the lines that the repository's `base` does not have.

    None of a file above `MOST_BYTES`.
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
