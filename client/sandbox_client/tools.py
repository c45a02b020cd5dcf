"""Tool schemas of the dialect `tool_calls`, in OpenAI's form, for adapters whose policies call tools as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_client.errors import SettingsError

FOR_PATCHES = ("bash", "str_replace_editor", "submit")
"""Tools for tasks that ask for a patch."""
FOR_PLACES = ("bash", "localization_finish")
"""Tools for code search."""


def schemas(names: Sequence[str]) -> list[dict[str, Any]]:
    """The tools' schemas, in this order. Raises SettingsError: a tool is unknown."""
    unknown = [name for name in names if name not in _TOOLS]
    if unknown:
        raise SettingsError(f"tools: {', '.join(unknown)} is not one of {', '.join(_TOOLS)}")
    return [{"type": "function", "function": {"name": name, **_TOOLS[name]}} for name in names]


def _tool(what: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"description": what, "parameters": parameters}


_TOOLS: Mapping[str, dict[str, Any]] = {
    "bash": _tool(
        "Run a command in a fresh bash at the repository. Several calls in one turn run in parallel.",
        ["command"],
        command={"type": "string", "description": "The command."},
        timeout={"type": "number", "description": "Seconds until it is killed."},
    ),
    "execute_bash": _tool(
        "Run a command in the session's persistent bash, which keeps its folder and variables.",
        ["command"],
        command={"type": "string", "description": "The command."},
        timeout={"type": "number", "description": "Seconds until it is killed."},
    ),
    "str_replace_editor": _tool(
        "View, create and edit files.",
        ["command", "path"],
        command={"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
        path={"type": "string", "description": "Absolute path of the file or folder."},
        file_text={"type": "string", "description": "For create: the file's content."},
        old_str={"type": "string", "description": "For str_replace: a text that occurs exactly once."},
        new_str={"type": "string", "description": "For str_replace and insert: the new text."},
        insert_line={"type": "integer", "description": "For insert: the line after which it goes."},
        view_range={"type": "array", "items": {"type": "integer"}, "description": "For view: first and last line."},
    ),
    "localization_finish": _tool(
        "Give your answer: the places that the change must touch.",
        ["locations"],
        locations={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": {"type": "string"},
                    "class_name": {"type": ["string", "null"]},
                    "function_name": {"type": ["string", "null"]},
                },
                "required": ["file"],
            },
        },
    ),
    "submit": _tool("End your work; the patch is taken from the working tree."),
}
