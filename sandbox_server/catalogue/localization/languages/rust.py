"""Rust."""

import tree_sitter

from sandbox_server.catalogue.localization.languages._grammar import Named, outline, text
from sandbox_server.catalogue.localization.outline import Outline

_TYPES = frozenset({"struct_item", "enum_item", "union_item", "trait_item"})
_FUNCTIONS = frozenset({"function_item", "function_signature_item", "macro_definition"})


class Rust:
    """Functions in an `impl` belong to the type, also in an `impl` of a trait; `mod` is not part of a name."""

    suffixes = (".rs",)

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        return outline(source, package="tree-sitter-rust", named=_named)


def _named(node: tree_sitter.Node) -> Named | None:
    if node.type in _TYPES:
        return Named(text(node.child_by_field_name("name")), function=False)
    if node.type == "impl_item":
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type == "generic_type":
            kind = kind.child_by_field_name("type")
        return Named(text(kind), function=False)
    if node.type in _FUNCTIONS:
        return Named(text(node.child_by_field_name("name")), function=True)
    return None


LANGUAGE = Rust()
