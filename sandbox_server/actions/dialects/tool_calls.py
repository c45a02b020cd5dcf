"""Tool calls as JSON: Hermes' `<tool_call>` blocks in a text, or OpenAI's form (a list of calls, or a message).

Calls of `bash` run in parallel, each in a fresh shell. If a call of a turn uses the persistent shell (`execute_bash`)
or the editor (`str_replace_editor`), all calls of the turn run in the policy's order, one after another. A malformed
call gets an error in its place and does not affect the others. Calls inside `<think>` are ignored. The answer of a code
search (`<files>` and the like, or a call of `localization_finish`, `result` or `finish`) runs nothing: the journal has
it, and the grading reads it there. `scoring.answering` decides whether a turn without calls is an answer.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import scalar_text, strip_tail
from sandbox_server.actions.json_calls import Understood, understood
from sandbox_server.actions.profiles import PLAIN
from sandbox_server.actions.tool_responses import OVER, Reply, blocks

MAX_CALLS = 64
"""Limit per turn; a turn with more calls gets a single error, so that parsing stays linear."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile("</?tool_call>")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()
_ANSWER_TAGS = ("files", "file-list", "answer")
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
        """A call of `bash` or `calls` with all calls of the turn, or the reply to a turn that runs nothing."""
        text = strip_tail(scalar_text(content))
        written = _calls(text)
        if len(written) > MAX_CALLS:
            return Say(f"Error: a turn has at most {MAX_CALLS} tool calls; none of these was run.", "many_calls")
        if not written:
            return Say(OVER, "over") if _is_tagged(text) else Say(_HOW, "no_call", is_talk=True)
        calls = [_understood(one) for one in written]
        told = [one for one in calls if isinstance(one, Reply)]
        if any(isinstance(one, Call) for one in calls):
            return Call("calls", {"calls": tuple(calls)})
        if len(told) < len(calls):
            return Call("bash", {"calls": tuple(calls)})
        answered = any(one.code == "answer" for one in told)
        return Say(blocks([one.text for one in told]), "answer" if answered else told[0].code)


def _calls(text: str) -> Sequence[object]:
    """The turn's calls as written."""
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
    """A message's content, which is a text or a list of parts, as text."""
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
    """`text` after its thoughts; some templates put the opening tag into the prompt."""
    opened = text.lstrip().startswith("<think>")
    end = text.find("</think>")
    if end < 0:
        return "" if opened else text
    if not opened and text.rfind(_OPEN, 0, end) > text.rfind(_CLOSE, 0, end):
        return text  # the tag is inside a call, as part of an argument
    return text[end + len("</think>") :]


def _block(text: str, begin: int) -> tuple[object, int]:
    """The value of the block whose content begins at `begin`, and the block's end.

    Its JSON is parsed first, so a tag inside an argument is part of the argument. The closing tag may be missing at the
    end of the text, where a stop word or the length limit removed it.
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


def _is_tagged(text: str) -> bool:
    """Whether a turn without calls has an answer in tags; in a task that asks for none, this ends the policy's work."""
    said = _without_thoughts(text)
    starts = ((said.find(f"<{tag}>"), tag) for tag in _ANSWER_TAGS)
    return any(start >= 0 and said.find(f"</{tag}>", start) >= 0 for start, tag in starts)


def _understood(written: object) -> Understood:
    if isinstance(written, _Malformed):
        return Reply(f"Error: the tool call was not understood: {written.why}.", "bad_call")
    return understood(written)


DIALECT = ToolCalls()
