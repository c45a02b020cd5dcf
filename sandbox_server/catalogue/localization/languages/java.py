"""Java."""

import tree_sitter

from sandbox_server.catalogue.localization.languages._grammar import Named, outline, text
from sandbox_server.catalogue.localization.outline import Outline

_TYPES = frozenset(
    {
        "class_declaration",
        "interface_declaration",
        "enum_declaration",
        "record_declaration",
        "annotation_type_declaration",
    }
)
_FUNCTIONS = frozenset({"method_declaration", "constructor_declaration", "compact_constructor_declaration"})


class Java:
    """A constructor is `Class.Class`; an anonymous class is part of the enclosing method."""

    suffixes = (".java",)

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        return outline(source, package="tree-sitter-java", named=_named)


def _named(node: tree_sitter.Node) -> Named | None:
    if node.type in _TYPES:
        return Named(text(node.child_by_field_name("name")), function=False)
    if node.type in _FUNCTIONS:
        return Named(text(node.child_by_field_name("name")), function=True)
    return None


LANGUAGE = Java()
