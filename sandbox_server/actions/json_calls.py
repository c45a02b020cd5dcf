"""Parses one JSON tool call of a turn into what to run, or an error. Pure; no input raises.

`bash` runs a command in a fresh shell. `execute_bash` (the persistent shell) and `str_replace_editor` are the tools of
the text dialects, with the same names and parameters.
"""

import json
from collections.abc import Mapping

from sandbox_server.actions.base import Call
from sandbox_server.actions.batch import Command, fault
from sandbox_server.actions.content import scalar_text
from sandbox_server.actions.tool_responses import OVER, RECORDED, Reply

ANSWERS = ("localization_finish", "result", "finish")
_COMMANDS = ("bash", "terminal")
_SHELL, _EDITOR, _SUBMIT = "execute_bash", "str_replace_editor", "submit"
_KNOWN = (_COMMANDS[0], _SHELL, _EDITOR, *ANSWERS, _SUBMIT)
_EDITS = ("view", "create", "str_replace", "insert", "undo_edit")
_TEXTS = ("file_text", "old_str", "new_str")
_UNHEEDED = frozenset(("security_risk", "is_input"))
"""Ignored parameters that newer OpenHands prompts add. `is_input` is not needed: input for a running command is
detected."""
_DECODER = json.JSONDecoder()

Understood = Command | Call | Reply


def understood(written: object) -> Understood:
    """Parse a call in the form of OpenAI's API or a Hermes block: `name`, and `arguments` or `parameters`."""
    named = written.get("function", written) if isinstance(written, Mapping) else None
    if isinstance(named, str) and isinstance(written, Mapping):
        named = {**written, "name": named}
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        return Reply("Error: the tool call was not understood: it has no name.", "bad_call")
    name = scalar_text(named["name"])
    if name in ANSWERS:
        return Reply(RECORDED, "answer")
    if name == _SUBMIT:
        return Reply(OVER, "finish")
    if name not in (*_COMMANDS, _SHELL, _EDITOR):
        return Reply(f"Error: there is no tool {name[:100]!r}; there are {', '.join(_KNOWN)}.", "unknown_tool")
    arguments = _decoded(named.get("arguments", named.get("parameters")))
    if not isinstance(arguments, Mapping):
        return Reply("Error: Invalid tool arguments - they are not a JSON object.", "bad_parameter")
    given = {name: value for name, value in arguments.items() if value is not None and name not in _UNHEEDED}
    made = _editing(given) if name == _EDITOR else _command(name, given)
    return Reply(f"Error: Invalid tool arguments - {made}.", "bad_parameter") if isinstance(made, str) else made


def _decoded(arguments: object) -> object:
    """The arguments as an object; a text is parsed as JSON, up to three times if the result is a text again."""
    for _ in range(3):
        if not isinstance(arguments, str):
            break
        try:
            arguments = _DECODER.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            break
    return {} if arguments is None else arguments


def _unknown(tool: str, given: Mapping[str, object], known: tuple[str, ...]) -> str:
    """An error if a parameter is unknown to the tool, else ""."""
    other = next((name for name in given if name not in known), None)
    return "" if other is None else f"{tool} has no parameter {scalar_text(other[:100])!r}; it has {', '.join(known)}"


def _command(tool: str, given: Mapping[str, object]) -> Command | Call | str:
    """A command for a fresh or the persistent shell, or an error."""
    persistent = tool == _SHELL
    spoken = tool if persistent else _COMMANDS[0]
    command, timeout, cwd = given.get("command"), given.get("timeout"), given.get("cwd", "")
    if why := _unknown(spoken, given, ("command", "timeout") if persistent else ("command", "timeout", "cwd")):
        return why
    if not isinstance(command, str):
        return f"{spoken} needs a command, which is a text"
    if not isinstance(cwd, str):
        return "cwd is a text"
    if not isinstance(timeout, int | float | None) or isinstance(timeout, bool):
        return "timeout is a number of seconds"
    asked = Command(scalar_text(command), timeout, scalar_text(cwd))
    waits = persistent and not asked.command.strip()  # an empty command waits for the running one
    if why := fault(Command("true", timeout) if waits else asked):
        return why
    if not persistent:
        return asked
    return Call(_SHELL, {"command": asked.command} | ({} if timeout is None else {"timeout": timeout}))


def _editing(given: Mapping[str, object]) -> Call | str:
    known = ("command", "path", *_TEXTS, "insert_line", "view_range")
    if why := _unknown(_EDITOR, given, known):
        return why
    if given.get("command") not in _EDITS:
        return f"command is one of {', '.join(_EDITS)}"
    wrong = next((name for name in ("path", *_TEXTS) if not isinstance(given.get(name, ""), str)), None)
    if wrong or "path" not in given:
        return f"{wrong or 'path'} is a text" if wrong else f"{_EDITOR} needs a path"
    line, view = given.get("insert_line"), _decoded(given.get("view_range"))
    line = int(line) if isinstance(line, str) and line.isascii() and line.isdecimal() and len(line) < 10 else line
    if not isinstance(line, int | None) or isinstance(line, bool):
        return "insert_line is an integer"
    if view not in ({}, None) and not isinstance(view, list):
        return "view_range is a list of two integers"
    arguments = {**given}
    if line is not None:
        arguments["insert_line"] = line
    if isinstance(view, list):
        arguments["view_range"] = view
    return Call(_EDITOR, arguments)
