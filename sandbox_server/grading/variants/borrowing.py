"""Replaces an expected value by another one from the same file, which has the form, words and range usual there.

An invented value may be recognised by its looks: a word of no language, a list of zeros. A value that is expected
elsewhere in the file may not.
"""

import ast
import hashlib
from collections.abc import Iterable, Sequence
from random import Random

from sandbox_server.grading.variants.base import Source, Variant
from sandbox_server.grading.variants.expected import is_literal

Pool = Sequence[ast.expr]
"""Literals that the file's tests expect."""


def borrowed(source: Source, literal: ast.expr, pool: Pool, rng: Random) -> list[Variant]:
    """Up to two variants of a text, a sequence or a dictionary; [] for numbers, which need no borrowing."""
    own = _value(literal)
    if own is None or not isinstance(own, str | bytes | list | tuple | dict):
        return []
    texts = sorted({source.segment(other) for other in pool if _alike(own, _value(other))})
    return [Variant("borrowed", (source.replaced(literal, text),)) for text in rng.sample(texts, min(2, len(texts)))]


def draws(source: Source, node: ast.expr | ast.stmt) -> int:
    """A number that can only be computed from the file's true text; the same place always gives the same number."""
    return int.from_bytes(hashlib.sha256(source.once(_digest) + source.start(node).to_bytes(8)).digest()[:4])


def _digest(source: Source) -> bytes:
    return hashlib.sha256(source.text).digest()


def _value(node: ast.expr) -> object:
    """The literal's value; None if it is no literal or cannot be evaluated."""
    if not is_literal(node):
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _alike(one: object, other: object) -> bool:
    """Whether both have the same form and are unequal."""
    if type(one) is not type(other) or one == other:
        return False
    if isinstance(one, str | bytes) and isinstance(other, str | bytes):
        return bool(other) and len(one.splitlines()) <= 1 and len(other.splitlines()) <= 1
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) != len(other):
        return False
    return not one or not other or _kinds(one) == _kinds(other)


def _kinds(value: object) -> set[str]:
    """Type names of the elements of a sequence or a dictionary's values."""
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    return {type(part).__name__ for part in parts}
