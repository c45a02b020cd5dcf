"""Turns of tool calls, as the service's dialect `tool_calls` takes and answers them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_client.errors import BadAnswer

ANSWER_CALLS = ("localization_finish", "result", "finish", "submit")
"""Calls that are the policy's answer, or end its work."""
_RECORDED = "Your answer is recorded."
_ENDS = (_RECORDED, "The interaction is over.")
_TO_THE_TURN = ("Error: ", _RECORDED)
"""How an answer to a turn as a whole begins: it had too many calls, or an answer beside calls that run nothing."""
_BLOCK = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


def message(content: str, calls: Sequence[Mapping[str, str]]) -> str:
    """An assistant's turn as an action's content; each of `calls` has an id, a name, and arguments as JSON."""
    if not calls:
        return content
    functions = [
        {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
        for one in calls
    ]
    said: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": functions}
    return json.dumps(said)


def responses(observation: str, count: int) -> list[str]:
    """The answers to a turn's `count` calls, in their order.

    What the service has to tell beside them (that a session was restored) stands before the first one's.

    Raises:
        BadAnswer: these are no answers to calls; the instance's dialect is another one.
    """
    found = _BLOCK.findall(observation)
    if len(found) != count:
        if observation.startswith(_TO_THE_TURN):
            return [observation] * count
        raise BadAnswer(
            f"{count} calls got {len(found)} answers: the instance's dialect (or SANDBOX_DIALECT) is not tool_calls"
        )
    before = observation.partition("<tool_response>\n")[0]
    return [before + found[0], *found[1:]]


def is_recorded(observation: str) -> bool:
    """Whether the service has the policy's answer or the end of its work, as `observation` says: the rollout is over.

    What a command prints after its first line does not count.
    """
    blocks = _BLOCK.findall(observation)
    if blocks:
        return any(block.startswith(_ENDS) for block in blocks)
    return any(line.startswith(_ENDS) for line in observation.splitlines())
