"""Shared by the languages that tree-sitter parses. Each grammar is a separate package, loaded when first needed."""

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import tree_sitter

from sandbox_server.catalogue.localization.outline import Definition, NotOutlined, Outline

Naming = Callable[[tree_sitter.Node], "Named | None"]
"""Returns what a node defines; None: nothing."""


class Named:
    """A node that defines something."""

    def __init__(self, name: str, *, function: bool, owner: str = "") -> None:
        """`owner`: class of a method that is defined outside the class."""
        self.name = name
        self.function = function
        self.owner = owner


@cache
def _parser(package: str, function: str) -> tree_sitter.Parser:
    module = importlib.import_module(package.replace("-", "_"))
    return tree_sitter.Parser(tree_sitter.Language(cast(Callable[[], object], getattr(module, function))()))


def outline(source: bytes, *, package: str, named: Naming, function: str = "language") -> Outline:
    """The definitions that `named` finds in `source`, parsed by the grammar in the package `package`.

    Raises:
        NotOutlined: the package is not installed, or the source does not parse.

    """
    try:
        parser = _parser(package, function)
    except ImportError:
        raise NotOutlined(
            f"{package} is not installed: `pip install {package}`, or all of them by the extra `languages`"
        ) from None
    except ValueError as error:
        raise NotOutlined(f"{package} does not go with this tree-sitter: {error}; upgrade both") from None
    root = parser.parse(source).root_node
    if root.has_error:
        raise NotOutlined(f"does not parse by {package}: an error near line {_first_error(root)}")
    return Outline(_definitions(root, named), _silent(root, source))


def _definitions(root: tree_sitter.Node, named: Naming) -> Iterator[Definition]:
    waiting = [(root, "")]
    while waiting:
        node, scope = waiting.pop()
        found = named(node)
        if found is not None:
            owner = found.owner or scope
            name = f"{owner}.{found.name}" if owner else found.name
            module = (owner or name) if found.function else name
            yield Definition(_first_line(node), node.end_point[0] + 1, module, name if found.function else None)
            if found.function:
                continue  # definitions inside a function belong to the function
            scope = name
        waiting += [(child, scope) for child in reversed(node.named_children)]


def _first_line(node: tree_sitter.Node) -> int:
    """First line, including decorators, attributes or annotations before it."""
    first = node
    if first.parent is not None and first.parent.type == "export_statement":
        first = first.parent
    while first.prev_named_sibling is not None and first.prev_named_sibling.type in ("decorator", "attribute_item"):
        first = first.prev_named_sibling
    return first.start_point[0] + 1


def _silent(root: tree_sitter.Node, source: bytes) -> frozenset[int]:
    lines = source.split(b"\n")
    silent = {number for number, line in enumerate(lines, start=1) if not line.strip()}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type.endswith("comment"):
            first, last = node.start_point, node.end_point
            # a line with code before or after the comment belongs to the code
            end = last[0] - (last[1] == 0)
            alone_before = not lines[first[0]][: first[1]].strip()
            alone_after = last[1] == 0 or not lines[last[0]][last[1] :].strip()
            silent.update(range(first[0] + 2 - alone_before, end + 1 + alone_after))
        else:
            waiting += node.named_children
    return frozenset(silent)


def _first_error(root: tree_sitter.Node) -> int:
    node = root
    while not (node.is_error or node.is_missing):
        worse = next((child for child in node.children if child.has_error or child.is_missing), None)
        if worse is None:
            break
        node = worse
    return node.start_point[0] + 1


def text(node: tree_sitter.Node | None) -> str:
    """A node's source, "" for none."""
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""
