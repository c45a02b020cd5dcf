"""Tells which false expectations code can recognise, because the repository has the true text of their place."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from sandbox_server.grading.variants.base import Source, Variant
from sandbox_server.grading.variants.cases import named_rows
from sandbox_server.grading.variants.finding import FoundTest, defined

Places = Sequence[tuple[int, int]]
"""Begin and end of parts of a test file, in bytes."""


class RepositoryTests:
    """The statements of the repository's own test files, and the rows of their tables.

    A test patch often adds a line to a test, or a row to its table. Code can compare the lines and rows around it with
    the repository's.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._statements: set[str] = set()
        self._rows: dict[str, set[str]] = {}  # a test's name, or its body -> the rows of its tables
        for source in sources:
            self._statements.update(map(ast.dump, _statements(source.tree)))
            for found in defined(source):
                rows = {ast.dump(row) for row in _rows(found)}
                for key in _keys(found):
                    self._rows.setdefault(key, set()).update(rows)

    def places(self, found: FoundTest) -> Places:
        """The statements of a test that the repository has anywhere, and the rows that it has in the same test."""
        rows = frozenset[str]().union(*(self._rows.get(key, ()) for key in _keys(found)))
        there: list[ast.stmt | ast.expr] = [
            *(one for one in _statements(found.function) if ast.dump(one) in self._statements),
            *(one for one in _rows(found) if ast.dump(one) in rows),
        ]
        return [(found.source.start(one), found.source.end(one)) for one in there]


def marked(variants: Iterable[Variant], known: Places) -> list[Variant]:
    """The variants, with `public` set if one of their edits lies in a known place."""
    return [
        replace(variant, public=any(lies_in(known, edit.start, edit.end) for edit in variant.edits))
        for variant in variants
    ]


def lies_in(places: Places, start: int, end: int) -> bool:
    """Whether the bytes `start` to `end` lie within one of `places`."""
    return any(begin <= start and end <= to for begin, to in places)


def _keys(found: FoundTest) -> tuple[str, str]:
    return found.name, "".join(map(ast.dump, found.function.body))


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    defining = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, defining))


def _rows(found: FoundTest) -> Iterator[ast.expr]:
    """Elements of collections that have several parts themselves, in the test and in its cases outside of it."""
    trees = (found.function, *named_rows(found.source, found.function))
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
                yield from (part for part in parts if _is_row(part))


def _is_row(part: ast.expr) -> bool:
    match part:
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
            return len(values) > 1
        case ast.Call(args=args, keywords=keywords):
            return len(args) + len(keywords) > 1
    return False
