"""Go."""

import re

import tree_sitter

from sandbox_server.catalogue.localization.languages._grammar import Named, outline, text
from sandbox_server.catalogue.localization.outline import Outline

_RECEIVER = re.compile(r"\(\s*(?:\w+\s+)?\*?\s*(\w+)")


class Go:
    """A method belongs to its receiver's type, `Type.Method`, even if another file of the package defines the type."""

    suffixes = (".go",)

    def outline(self, source: bytes, suffix: str) -> Outline:
        """See `Language`."""
        return outline(source, package="tree-sitter-go", named=_named)


def _named(node: tree_sitter.Node) -> Named | None:
    if node.type in ("function_declaration", "method_elem"):
        return Named(text(node.child_by_field_name("name")), function=True)
    if node.type == "method_declaration":
        receiver = _RECEIVER.match(text(node.child_by_field_name("receiver")))
        return Named(text(node.child_by_field_name("name")), function=True, owner=receiver[1] if receiver else "")
    if node.type in ("type_spec", "type_alias"):
        return Named(text(node.child_by_field_name("name")), function=False)
    return None


LANGUAGE = Go()
