"""Python, by the `ast` of the running interpreter."""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator

from sandbox_server.catalogue.localization.outline import Definition, NotOutlined, Outline

_LONE_RETURN = re.compile(rb"\r(?!\n)")
_Def = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Python:
    """Definitions in a function belong to it; definitions under if, try, with and loops count like others."""

    suffixes = (".py", ".pyi", ".pyw")

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        source = _LONE_RETURN.sub(b" ", source)  # ends a line for Python, but not in a diff, which numbers the lines
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like concern the repository's authors
                tree = ast.parse(source)
        except SyntaxError as error:
            raise NotOutlined(f"no Python 3: {error.msg} at line {error.lineno}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise NotOutlined(f"no Python that could be read: {error or type(error).__name__}") from None
        return Outline(_definitions(tree), _Silent(tree, source))


def _definitions(tree: ast.Module) -> Iterator[Definition]:
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, scope = waiting.pop()
        inside = scope
        if isinstance(node, _Def):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            inside = f"{scope}.{node.name}" if scope else node.name
            if not isinstance(node, ast.ClassDef):
                yield Definition(first, last, scope or inside, inside)
                continue
            yield Definition(first, last, inside, None)
        waiting += [(child, inside) for child in reversed(_statements(node))]


def _statements(node: ast.AST) -> list[ast.AST]:
    """The node's direct children that are statements or hold statements (except, case)."""
    kinds = (ast.stmt, ast.excepthandler, ast.match_case)
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, kinds)]


class _Silent:
    """Lines that belong to no definition. Comments are found by tokenizing the file, but only when first needed."""

    def __init__(self, tree: ast.Module, source: bytes) -> None:
        self._source = source
        self._lines = [line.strip() for line in source.split(b"\n")]
        self._docstrings = frozenset(_docstrings(tree))
        self._comments: frozenset[int] | None = None

    def __contains__(self, line: object) -> bool:
        """Whether this line is blank, has only a comment, or belongs to a class's docstring."""
        if not isinstance(line, int) or not 1 <= line <= len(self._lines) or not self._lines[line - 1]:
            return True
        if line in self._docstrings:
            return True
        if not self._lines[line - 1].startswith(b"#"):
            return False
        if self._comments is None:
            self._comments = frozenset(_comments(self._source))
        return line in self._comments


def _docstrings(tree: ast.Module) -> Iterator[int]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            yield from range(text.lineno, (text.end_lineno or text.lineno) + 1)
        waiting += _statements(node)


def _comments(source: bytes) -> Iterator[int]:
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return  # rare, because `ast` has parsed the source; comments from here on count as code


LANGUAGE = Python()
