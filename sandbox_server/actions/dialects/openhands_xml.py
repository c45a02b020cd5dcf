"""OpenHands calls without native tool calling: `<function=NAME>`, `<parameter=P>value</parameter>`, `</function>`.

Parses what OpenHands 0.14 to 0.18 parses, and reports errors in its words. Deliberately the same: a value is stripped
of surrounding white space; an unclosed parameter (text cut at its length limit) is ignored, so that half a command
never runs; of a repeated parameter the last value counts. Deliberately different: sets in error texts are in the
tools' order (there in any order), a repeated `<parameter=P>` line is dropped (the prompt's own example has one), and
parameters of `finish` are ignored (there they cause a crash).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import scalar_text, strip_tail
from sandbox_server.actions.profiles import OPENHANDS, cut_middle

_ERROR_TAIL = "\n[Error occurred in processing last action]"
_REMINDER = (
    "Please continue working on the task on whatever approach you think is suitable.\n"
    "If you think you have solved the task, please first send your answer to user through message "
    "and then finish the interaction.\n"
    "IMPORTANT: YOU SHOULD NEVER ASK FOR HUMAN HELP.\n"
)
_MAY_GIVE_UP = 'If you want to give up, use the "finish" tool to finish the interaction.\n'


class _Refused(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.say = Say(cut_middle(text) + _ERROR_TAIL, code)


def _string(value: str) -> object:
    return value


def _integer(value: str) -> object:
    return int(value)


def _array(value: str) -> object:
    array = json.loads(value)
    if array is not None and not isinstance(array, list):
        raise ValueError
    return array


def _one_of(*names: str) -> "_Parameter":
    def check(value: str) -> object:
        if value not in names:
            raise ValueError
        return value

    return _Parameter(check, f"one of {list(names)}", required=True)


@dataclass(frozen=True, slots=True)
class _Parameter:
    read: Callable[[str], object] = _string
    """Parse the value. Raises ValueError (RecursionError: deeply nested JSON) if it is not what `expected` says."""
    expected: str = ""
    required: bool = False


_TOOLS: Mapping[str, Mapping[str, _Parameter]] = {
    "execute_bash": {"command": _Parameter(required=True)},
    "finish": {},
    "str_replace_editor": {
        "command": _one_of("view", "create", "str_replace", "insert", "undo_edit"),
        "path": _Parameter(required=True),
        "file_text": _Parameter(),
        "old_str": _Parameter(),
        "new_str": _Parameter(),
        "insert_line": _Parameter(_integer, "an integer"),
        "view_range": _Parameter(_array, "an array"),
    },
}


class OpenHandsXml:
    """See the module."""

    name = "openhands_xml"
    default_profile = OPENHANDS

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """The first call in `content`, or an error text, or OpenHands' reminder if there is no call."""
        found = _find_call(_close(strip_tail(scalar_text(content))))
        if found is None:
            return Say(_REMINDER + (_MAY_GIVE_UP if talk_turns >= 1 else ""), "no_call", is_talk=True)
        name, body = found
        try:
            return Call(name, _arguments(name, body))
        except _Refused as refused:
            return refused.say


def _close(text: str) -> str:
    """Repair the end of a single call that was cut by the stop word or the length limit."""
    if text.count("<function=") != 1:
        return text
    return text + "function>" if text.endswith("</") else text + "\n</function>"


def _find_call(text: str) -> tuple[str, str] | None:
    """(name, body) of the first `<function=NAME>`, newline, body, `</function>`."""
    for _, begin, close in _tags(text, "<function="):
        if text.startswith("\n", close + 1):
            end = text.find("</function>", close + 2)
            # Without an end after this tag there is none after later ones.
            return (text[begin:close], text[close + 2 : end]) if end >= 0 else None
    return None


def _tags(text: str, opening: str) -> Iterator[tuple[int, int, int]]:
    """Each `OPENING name>` with a name: offsets of its start, its name's start and its name's end.

    Scans each character once and copies nothing. A tag without `>` ends at the next tag's `>`, so their names overlap.
    """
    start, close = text.find(opening), -1
    while start >= 0:
        begin = start + len(opening)
        if close < begin:
            close = text.find(">", begin)
            if close < 0:
                return
        if close > begin:
            yield start, begin, close
        start = text.find(opening, begin)


def _arguments(tool: str, body: str) -> dict[str, object]:
    parameters = _TOOLS.get(tool)
    if parameters is None:
        raise _Refused("unknown_tool", f"Function '{tool}' not found in available tools: {list(_TOOLS)}")
    arguments: dict[str, object] = {}
    past = 0
    for start, begin, close in _tags(body, "<parameter="):
        if start < past:
            continue  # part of the previous value
        end = body.find("</parameter>", close)
        if end < 0:
            break
        past = end
        if parameters:
            name = body[begin:close]
            arguments[name] = _value(tool, name, body[close + 1 : end].strip())
    missing = [name for name, parameter in parameters.items() if parameter.required and name not in arguments]
    if missing:
        raise _Refused("missing_parameter", f"Missing required parameters for function '{tool}': {_set(missing)}")
    return arguments


def _value(tool: str, name: str, value: str) -> object:
    allowed = _TOOLS[tool]
    if name not in allowed:
        text = f"Parameter '{name}' is not allowed for function '{tool}'. Allowed parameters: {_set(allowed)}"
        raise _Refused("unknown_parameter", text)
    parameter = allowed[name]
    try:
        return parameter.read(value.removeprefix(f"<parameter={name}>").lstrip())
    except (ValueError, RecursionError):
        raise _Refused("bad_parameter", f"Parameter '{name}' is expected to be {parameter.expected}.") from None


def _set(names: Mapping[str, _Parameter] | list[str]) -> str:
    return "{" + ", ".join(repr(name) for name in names) + "}"


DIALECT = OpenHandsXml()
