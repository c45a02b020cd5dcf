"""Shared by JavaScript and TypeScript."""

import re

import tree_sitter

from sandbox_server.catalogue.localization.languages._grammar import Named, text

_CLASSES = frozenset(
    {"class_declaration", "abstract_class_declaration", "class", "interface_declaration", "enum_declaration"}
)
_FUNCTIONS = frozenset(
    {
        "function_declaration",
        "generator_function_declaration",
        "function_signature",
        "method_definition",
        "abstract_method_signature",
        "method_signature",
    }
)
_VALUES = frozenset({"arrow_function", "function_expression", "generator_function"})
_NAME = re.compile(r"[\w$#.]+")
_FIELDS = frozenset({"field_definition", "public_field_definition"})


def named(node: tree_sitter.Node) -> Named | None:
    """Classes and similar, functions, methods, and functions assigned to a name."""
    if node.type in _CLASSES:
        name = text(node.child_by_field_name("name")) or _name_of_value(node)
        return Named(name, function=False) if name else None
    if node.type in _FUNCTIONS:
        name = text(node.child_by_field_name("name"))
        return Named(name, function=True) if name else None
    if node.type in _VALUES and (name := _name_of_value(node)):
        owner, _, last = name.rpartition(".")
        return Named(last, function=True, owner=owner.removesuffix(".prototype"))
    if node.type == "object" and node.parent is not None and node.parent.type == "variable_declarator":
        return Named(text(node.parent.child_by_field_name("name")), function=False)
    return None


def _name_of_value(node: tree_sitter.Node) -> str:
    name = _target(node)
    return name if _NAME.fullmatch(name) else ""  # a[b] = ..., {a, b} = ...: not a name that an answer would give


def _target(node: tree_sitter.Node) -> str:
    """The name that the value is assigned to; "default" for `export default`, "" for none.

    It is `f` in `const f = ...`, in `f = ...` within a class, in `f: ...` within an object, and in `exports.f = ...`.
    """
    parent = node.parent
    if parent is None:
        return ""
    if parent.type == "variable_declarator":
        return text(parent.child_by_field_name("name"))
    if parent.type in _FIELDS:
        return text(parent.child_by_field_name("property") or parent.child_by_field_name("name"))
    if parent.type == "pair":
        return text(parent.child_by_field_name("key")).strip("\"'")
    if parent.type == "assignment_expression":
        target = text(parent.child_by_field_name("left"))
        return target.removeprefix("module.").removeprefix("exports.").removeprefix("this.")
    return "default" if parent.type == "export_statement" else ""
