"""Which tests the repository has already, word for word: code can compare with those, and tell an altered one."""

import ast
from collections.abc import Iterable

from sandbox_server.grading.variants.base import Source
from sandbox_server.grading.variants.cases import Case
from sandbox_server.grading.variants.expected import Function
from sandbox_server.grading.variants.finding import Found, functions


class Known:
    """The tests of the repository's own files."""

    def __init__(self, sources: Iterable[Source]) -> None:
        there = [found for source in sources for found in functions(source)]
        self._whole = {_words(found.function) for found in there}
        self._bodies = {_body(found.function) for found in there}
        self._rows = {row for found in there for row in _rows(found.function)}

    def has(self, found: Found, case: Case | None = None) -> bool:
        """The whole function, or that one case of it; in any of the files."""
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
