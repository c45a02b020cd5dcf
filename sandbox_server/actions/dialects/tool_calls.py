"""Tool calls as JSON: Hermes' `<tool_call>` blocks in a text, or what OpenAI's API gives (a list of calls, a message).

All calls of a turn run in parallel; a malformed one is answered in its own place and costs the others nothing. Calls
inside `<think>` are thoughts. The answer of code search (`<files>` and the like, or a call of `localization_finish`,
`result` or `finish`) runs nothing: it is recorded by being in the journal, and read when the session is graded. Whether
a turn without calls is one is not for the dialect to say (`sessions.answering`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.batch import Command, fault
from sandbox_server.actions.content import scalar_text, strip_tail
from sandbox_server.actions.profiles import PLAIN
from sandbox_server.actions.tool_responses import RECORDED, Told, blocks

MAX_CALLS = 64
"""In one turn; a text with more is answered as a whole, so that reading it stays linear."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile("</?tool_call>")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()
_COMMANDS = ("bash", "terminal", "execute_bash")
_ANSWERS = ("localization_finish", "result", "finish")
_PARAMETERS = ("command", "timeout", "cwd")
_HOW = (
    'Call a tool, as in <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call> (several calls in one '
    "turn run in parallel), or give your answer: one path per line between <files> and </files>."
)


@dataclass(frozen=True, slots=True)
class _Malformed:
    why: str


class ToolCalls:
    """See the module."""

    name = "tool_calls"
    default_profile = PLAIN

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """A call of `bash` with all calls of the turn; what is said to a turn that runs nothing."""
        written = _calls(strip_tail(scalar_text(content)))
        if len(written) > MAX_CALLS:
            return Say(f"Error: a turn has at most {MAX_CALLS} tool calls; none of these was run.", "many_calls")
        if not written:
            return Say(_HOW, "no_call", is_talk=True)
        calls = [_call(one) for one in written]
        told = [one for one in calls if isinstance(one, Told)]
        if len(told) < len(calls):
            return Call("bash", {"calls": tuple(calls)})
        answered = any(one.code == "answer" for one in told)
        return Say(blocks([one.text for one in told]), "answer" if answered else told[0].code)


def _calls(text: str) -> Sequence[object]:
    """The calls of a turn as they were written."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            return [_Malformed(_why(error))] if '"arguments"' in text else _hermes(text)
        match value:
            case {"tool_calls": [first, *more]}:
                return [first, *more]
            case {"role": _, "content": content} | {"tool_calls": _, "content": content}:
                return _hermes(_text_of(content))
            case {"function": _} | {"name": _}:
                return [value]
            case [*calls] if any(isinstance(one, dict) for one in calls):
                return calls
    return _hermes(text)


def _text_of(content: object) -> str:
    """A message's content: a text, or a list of parts."""
    match content:
        case str():
            return scalar_text(content)
        case [*parts]:
            texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
            return scalar_text("".join(texts))
    return ""


def _hermes(text: str) -> Sequence[object]:
    text = _without_thoughts(text)
    calls: list[object] = []
    place = 0
    while (start := text.find(_OPEN, place)) >= 0 and len(calls) <= MAX_CALLS:
        call, place = _block(text, start + len(_OPEN))
        calls.append(call)
    return calls


def _without_thoughts(text: str) -> str:
    """`text` from behind its thoughts on; some templates put their opening tag into the prompt."""
    opened = text.lstrip().startswith("<think>")
    end = text.find("</think>")
    if end < 0:
        return "" if opened else text
    if not opened and text.rfind(_OPEN, 0, end) > text.rfind(_CLOSE, 0, end):
        return text  # it stands inside a call: an argument
    return text[end + len("</think>") :]


def _block(text: str, begin: int) -> tuple[object, int]:
    """The value of the block whose inside begins there, and where the block ends.

    Its JSON is read first, so that a tag in an argument is that argument's. Its closing tag may be missing at the end
    of the text, where a stop word or the length limit took it.
    """
    begin = _end_of_space(text, begin)
    try:
        value, end = _DECODER.raw_decode(text, begin)
        end = _end_of_space(text, end)
        if text.startswith(_CLOSE, end):
            return value, end + len(_CLOSE)
        if end == len(text) or text.startswith(_OPEN, end):
            return value, end
        value = _Malformed("there is more than one JSON object between the tags")
    except (ValueError, RecursionError) as error:
        value, end = _Malformed(_why(error)), begin
    tag = _TAG.search(text, end)
    if tag is None:
        return value, len(text)
    return value, tag.end() if tag[0] == _CLOSE else tag.start()


def _end_of_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _why(error: Exception) -> str:
    return f"it is not valid JSON ({error.msg})" if isinstance(error, json.JSONDecodeError) else "it cannot be read"


def _call(written: object) -> Command | Told:
    if isinstance(written, _Malformed):
        return Told(f"Error: the tool call was not understood: {written.why}.", "bad_call")
    named = written.get("function", written) if isinstance(written, Mapping) else None
    if isinstance(named, str) and isinstance(written, Mapping):
        named = {**written, "name": named}
    if not isinstance(named, Mapping) or not isinstance(named.get("name"), str):
        return Told("Error: the tool call was not understood: it has no name.", "bad_call")
    name = scalar_text(named["name"])
    if name in _ANSWERS:
        return Told(RECORDED, "answer")
    if name not in _COMMANDS:
        known = ", ".join((_COMMANDS[0], *_ANSWERS))
        return Told(f"Error: there is no tool {name[:100]!r}; there are {known}.", "unknown_tool")
    arguments = _decoded(named.get("arguments", named.get("parameters")))
    if not isinstance(arguments, Mapping):
        return Told("Error: Invalid tool arguments - they are not a JSON object.", "bad_parameter")
    return _command(arguments)


def _decoded(arguments: object) -> object:
    """Arguments as an object; a text is JSON, and may be JSON of JSON."""
    for _ in range(3):
        if not isinstance(arguments, str):
            break
        try:
            arguments = _DECODER.decode(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            break
    return {} if arguments is None else arguments


def _command(arguments: Mapping[str, object]) -> Command | Told:
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = [name[:100] for name in given if name not in _PARAMETERS]
    command, timeout, cwd = given.get("command"), given.get("timeout"), given.get("cwd", "")
    if unknown:
        why = f"bash has no parameter {scalar_text(unknown[0])!r}; it has {', '.join(_PARAMETERS)}"
    elif not isinstance(command, str):
        why = "bash needs a command, which is a text"
    elif not isinstance(cwd, str):
        why = "cwd is a text"
    elif not isinstance(timeout, int | float | None) or isinstance(timeout, bool):
        why = "timeout is a number of seconds"
    else:
        asked = Command(scalar_text(command), timeout, scalar_text(cwd))
        why = fault(asked)
        if not why:
            return asked
    return Told(f"Error: Invalid tool arguments - {why}.", "bad_parameter")


DIALECT = ToolCalls()
