"""Finds tests that the repository already has word for word: code can compare and recognise an altered one."""

import ast
from collections.abc import Iterable

from sandbox_server.grading.variants.base import Source
from sandbox_server.grading.variants.cases import Case
from sandbox_server.grading.variants.expected import Function
from sandbox_server.grading.variants.finding import Found, functions


class Known:
    """The tests in the repository's own files."""

    def __init__(self, sources: Iterable[Source]) -> None:
        there = [found for source in sources for found in functions(source)]
        self._whole = {_words(found.function) for found in there}
        self._bodies = {_body(found.function) for found in there}
        self._rows = {row for found in there for row in _rows(found.function)}

    def has(self, found: Found, case: Case | None = None) -> bool:
        """Whether any file has the whole function, or this one case of it."""
        if case is None:
            return _words(found.function) in self._whole
        return _body(found.function) in self._bodies and ast.dump(case.row) in self._rows


def _words(function: Function) -> str:
    return ast.dump(function)


def _body(function: Function) -> str:
    return "".join(map(ast.dump, function.body))


def _rows(function: Function) -> set[str]:
    lists = [
        node
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
        if isinstance(node, ast.List | ast.Tuple)
    ]
    return {ast.dump(row) for one in lists for row in one.elts}
