"""Descriptions of the tools for MCP and OpenEnv: the tools of a session, and those that start, end and grade one.

Not a plugin, hence the underscore.
"""

from collections.abc import Mapping, Sequence

Tool = Mapping[str, object]

_TIMEOUT = {"type": "number", "exclusiveMinimum": 0, "description": "Seconds until it is killed."}
_AFTER = {
    "type": "string",
    "description": "Only for a later step of a task, the `next` of another session: the sid of that session.",
}
_SID = {"type": "string", "description": "The session, as `start` returned it."}


def _text(description: str) -> dict[str, object]:
    return {"type": "string", "description": description}


def _tool(name: str, description: str, properties: Mapping[str, object], *required: str) -> dict[str, object]:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema}


_SHELL = _tool(
    "execute_bash",
    "Run a command in the sandbox's persistent shell: directory, variables and functions are kept. While a command"
    " still runs, an empty command waits for it, `ctrl+c` interrupts it, and any other text is typed to it.",
    {"command": _text("The command."), "timeout": _TIMEOUT},
    "command",
)
_BASH = _tool(
    "bash",
    "Run a command in a new shell of the sandbox, at the repository. Nothing of the shell is kept, files are.",
    {
        "command": _text("The command."),
        "timeout": _TIMEOUT,
        "cwd": _text("Directory, absolute or relative to the repository."),
    },
    "command",
)
_EDITOR = _tool(
    "str_replace_editor",
    "View, create and edit files of the sandbox. `view` shows a file with line numbers, or lists a directory; `create`"
    " writes a new file; `str_replace` replaces `old_str`, which must be in the file exactly once; `insert` puts"
    " `new_str` after line `insert_line`; `undo_edit` takes the last edit of the file back.",
    {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
        "path": _text("Absolute path."),
        "file_text": _text("For `create`: the content."),
        "old_str": _text("For `str_replace`: the text to replace."),
        "new_str": _text("For `str_replace` and `insert`: the new text."),
        "insert_line": {
            "type": "integer",
            "minimum": 0,
            "description": "For `insert`: after this line.",
        },
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "minItems": 2,
            "maxItems": 2,
            "description": "For `view`: first and last line; -1 is the end.",
        },
    },
    "command",
    "path",
)
_LOCATIONS = _tool(
    "localization_finish",
    "Only for tasks that ask where to change the code: give your answer, the places that the change must touch.",
    {
        "locations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": _text("Path in the repository."),
                    "class_name": _text("Class in that file."),
                    "function_name": _text("Function or method in it."),
                },
                "required": ["file"],
            },
        }
    },
    "locations",
)
_SUBMIT = _tool("submit", "Say that you are done. What counts is the repository as it is then.", {})
_REWARD = _tool(
    "reward",
    "End the session, grade it and return its reward as JSON. If `verdict` is `pending`, call it again; if `mask` is"
    " true, the reward says nothing about the work. `next`, if it is there, is the step of the task that follows.",
    {},
)
_END = _tool("end", "End the session: its patch is kept and graded, its sandbox removed.", {})


def of_session(*, localizes: bool) -> Sequence[Tool]:
    """The tools that act in one session."""
    return (_SHELL, _BASH, _EDITOR, *((_LOCATIONS,) if localizes else ()), _SUBMIT)


def of_server(instance: str) -> Sequence[Tool]:
    """The tools for a client that starts its own sessions. `instance`: the default of `start`; "" for none."""
    described = _text(f"The task's id{f', by default {instance}' if instance else ''}.")
    start = _tool(
        "start",
        "Start a session of a task. Returns its `sid`, which all other tools need, the repository's directory and the"
        " problem, as JSON.",
        {"instance": described, "after": _AFTER},
        *(() if instance else ("instance",)),
    )
    return (start, *(_with_sid(tool) for tool in (*of_session(localizes=True), _REWARD, _END)))


def _with_sid(tool: Tool) -> Tool:
    schema = tool["inputSchema"]
    assert isinstance(schema, dict)
    named = {**schema, "properties": {"sid": _SID, **schema["properties"]}, "required": ["sid", *schema["required"]]}
    return {**tool, "inputSchema": named}
