"""Variants of a sequence's values: another order, or other whole numbers with the same sum."""

import ast
from collections.abc import Sequence
from itertools import combinations
from random import Random

from sandbox_server.grading.variants.base import Source, Variant


def arranged(source: Source, node: ast.expr, rng: Random) -> list[Variant]:
    """Variants of a list, a tuple or a dictionary's values; [] for anything else, and if all values are equal."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return [*_exchanged(source, parts, rng), *_shifted(source, parts, rng)]
    return []


def _exchanged(source: Source, parts: Sequence[ast.expr], rng: Random) -> list[Variant]:
    """Exchange two unequal values."""
    texts = {part: source.segment(part) for part in parts if not isinstance(part, ast.Starred)}
    pairs = [(one, other) for one, other in combinations(texts, 2) if _unequal(one, other)]
    if not pairs:
        return []
    one, other = rng.choice(pairs)
    return [Variant("order", (source.replaced(one, texts[other]), source.replaced(other, texts[one])))]


def _shifted(source: Source, parts: Sequence[ast.expr], rng: Random) -> list[Variant]:
    """Add one to a whole number and subtract one from another."""
    numbers = {part: number for part in parts if (number := _whole(source, part)) is not None}
    if len(numbers) < 2:
        return []
    more, less = rng.sample(list(numbers), 2)
    edits = source.replaced(more, str(numbers[more] + 1)), source.replaced(less, str(numbers[less] - 1))
    return [Variant("order", edits)]


def _unequal(one: ast.expr, other: ast.expr) -> bool:
    try:
        return bool(ast.literal_eval(one) != ast.literal_eval(other))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.dump(one) != ast.dump(other)


def _whole(source: Source, part: ast.expr) -> int | None:
    """The number, if its text is its canonical form; not 0 or 1, which may be an index or a flag."""
    match part:
        case (
            ast.Constant(value=int() as number)
            | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number))
        ):
            number = -number if isinstance(part, ast.UnaryOp) else number
            return number if source.segment(part) == str(number) and abs(number) > 1 else None
    return None
