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
    """What is within a function is the function's; definitions under if, try, with and loops count as any other."""

    suffixes = (".py", ".pyi", ".pyw")

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        source = _LONE_RETURN.sub(b" ", source)  # a line's end to Python, not to a diff
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes and the like are the author's business
                tree = ast.parse(source)
        except SyntaxError as error:
            raise NotOutlined(f"no Python 3: {error.msg} at line {error.lineno}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise NotOutlined(f"no Python that could be read: {error or type(error).__name__}") from None
        definitions = list(_definitions(tree))
        return Outline(definitions, _silent(tree, source))


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
    """The statements and what holds statements (except, case) right below."""
    kinds = (ast.stmt, ast.excepthandler, ast.match_case)
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, kinds)]


def _silent(tree: ast.Module, source: bytes) -> frozenset[int]:
    lines = source.split(b"\n")
    silent = {number for number, line in enumerate(lines, start=1) if not line.strip()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            silent.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    # a line that begins with # is a comment unless a text goes over it
    for token in _tokens(source):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            silent.add(token.start[0])
    return frozenset(silent)


def _tokens(source: bytes) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.tokenize(io.BytesIO(source).readline)
    except (tokenize.TokenError, SyntaxError):  # what `ast` took, `tokenize` nearly always takes
        return


LANGUAGE = Python()
