"""Encode turns for the service's dialect `tool_calls`, and parse its observations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_client.errors import BadAnswer

ANSWER_CALLS = ("localization_finish", "result", "finish", "submit")
"""Calls that give the policy's answer or end its work."""
_RECORDED = "Your answer is recorded."
_ENDS = (_RECORDED, "The interaction is over.")
_TO_THE_TURN = ("Error: ", _RECORDED)
"""Prefixes of a reply to a whole turn: it had too many calls, or an answer beside calls that were not run."""
_HOW = "Call a tool, as in <tool_call>"
"""Start of the reply to a turn with neither calls nor an answer."""
_BLOCK = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


def message(content: str, calls: Sequence[Mapping[str, str]]) -> str:
    """Encode an assistant's turn as an action; each of `calls` has an id, a name, and arguments as JSON text."""
    if not calls:
        return content
    functions = [
        {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
        for one in calls
    ]
    said: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": functions}
    return json.dumps(said)


def responses(observation: str, count: int) -> list[str]:
    """Split an observation into the results of a turn's `count` calls, in order.

    A notice of the service (for instance that the session was restored) is put before the first result.

    Raises:
        BadAnswer: the number of results is wrong; the instance has another dialect.
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
    """Whether `observation` says that the service recorded the policy's answer or its finish: the rollout is over.

    In a command's output only the first line counts.
    """
    blocks = _BLOCK.findall(observation)
    if blocks:
        return any(block.startswith(_ENDS) for block in blocks)
    return any(line.startswith(_ENDS) for line in observation.splitlines())


def is_reply(observation: str) -> bool:
    """Whether `observation` is of the dialect `tool_calls`; false: no call of the policy would ever run."""
    return (
        _BLOCK.search(observation) is not None
        or is_recorded(observation)
        or any(line.startswith((_HOW, "Error: ")) for line in observation.splitlines())
    )
