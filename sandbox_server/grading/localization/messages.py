"""Parses chat messages as trainers store them into text, tool calls and answers. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.grading.localization.answers import AUTO, after_thinking, parse_answer, structured_answer
from sandbox_server.grading.localization.base import Events, Turn
from sandbox_server.grading.localization.structured import FINISHING, finishing_arguments, function_calls, of_text
from sandbox_server.verdicts import Answer

FINISH = "finish"
"""The tool that ends a rollout with a message to the user."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the policy."""

    text: str
    calls: tuple[object, ...] = ()
    """Calls in OpenAI's format, unchanged."""

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the called tools, also from `<tool_call>` blocks in the text; "" for a call without a name."""
        return tuple(map(_name, self._all_calls()))

    @property
    def acts(self) -> bool:
        """Whether it calls a tool that runs something."""
        return any(name not in FINISHING and name != FINISH for name in self.tools)

    def answer(self, *, written: str = AUTO, roots: Iterable[str] = (), acts: bool = False) -> Answer | None:
        """Its answer. If it `acts`, only a tagged answer or a finishing call counts, since quoted text is no answer."""
        roots = tuple(roots)
        for call in reversed(self._all_calls()):
            arguments = finishing_arguments(call)
            if arguments is not None and written in (AUTO, "structured"):
                return structured_answer(arguments, roots=roots)
            if written in (AUTO, "structured") and (data := _finishing_data(call)) is not None:
                return structured_answer(data, roots=roots)
            for text in _finishing_texts(call):
                if (answer := parse_answer(text, written=written, roots=roots)) is not None:
                    return answer
        return parse_answer(self.text, written=written, roots=roots, acts=acts)

    def _all_calls(self) -> tuple[object, ...]:
        said = after_thinking(self.text)
        return self.calls or (*map(_json, _blocks(said)), *function_calls(said))


def message_of(content: str) -> Message:
    """The message in a text: the text itself, or OpenAI's message or list of calls as JSON."""
    value = _json(content) if content.lstrip()[:1] in ("{", "[") else None
    if isinstance(value, Mapping) and ("role" in value or "tool_calls" in value):
        return read(value)
    if isinstance(value, list) and value and all(isinstance(call, Mapping) and _name(call) for call in value):
        return Message("", tuple(value))
    return Message(content)


def read(message: Mapping[str, object]) -> Message:
    """A message in OpenAI's format; parts that are not text are ignored."""
    calls = message.get("tool_calls")
    return Message(_text(message.get("content")), tuple(calls) if isinstance(calls, list) else ())


def conversation(
    messages: Sequence[Mapping[str, object]], *, written: str = AUTO, roots: Iterable[str] = ()
) -> tuple[Answer | None, Events]:
    """The assistant's latest answer, and the turns before it."""
    ours = [read(message) for message in messages if message.get("role") == "assistant"]
    events, roots = Events(tuple(Turn(message.tools) for message in ours)), tuple(roots)
    for message in reversed(ours):
        if (answer := message.answer(written=written, roots=roots, acts=message.acts)) is not None:
            return answer, events
    return None, events


def _text(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _blocks(text: str) -> list[str]:
    """The content of each `<tool_call>`."""
    found: list[str] = []
    end = 0
    while (begin := text.find(_OPEN, end)) >= 0:
        end = text.find(_CLOSE, begin)
        end = len(text) if end < 0 else end
        found.append(text[begin + len(_OPEN) : end])
    return found


def _finishing_texts(call: object) -> list[str]:
    """The message of a call of `finish` to the user."""
    if _name(call) != FINISH:
        return []
    arguments = _of_call(call).get("arguments", _of_call(call).get("parameters"))
    arguments = _json(arguments) if isinstance(arguments, str) else arguments
    return [value for value in arguments.values() if isinstance(value, str)] if isinstance(arguments, Mapping) else []


def _finishing_data(call: object) -> object | None:
    """The locations in the arguments of a call of `finish`; None if it has none."""
    if _name(call) != FINISH:
        return None
    arguments = _of_call(call).get("arguments", _of_call(call).get("parameters"))
    return of_text(arguments if isinstance(arguments, str) else json.dumps(arguments))


def _of_call(call: object) -> Mapping[str, object]:
    if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping):
        call = call["function"]
    return call if isinstance(call, Mapping) else {}


def _name(call: object) -> str:
    name = _of_call(call).get("name")
    return name if isinstance(name, str) else ""


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
