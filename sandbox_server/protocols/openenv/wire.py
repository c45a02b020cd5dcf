"""OpenEnv's messages: actions, observations with their reward, and errors. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox_server import __version__
from sandbox_server.actions.content import scalar_text
from sandbox_server.actions.tool_responses import OVER, RECORDED
from sandbox_server.errors import MalformedRequest
from sandbox_server.protocols._agents import ActionResult
from sandbox_server.protocols._scores import reward_fields
from sandbox_server.scoring.rewards import RewardAnswer

_OVER = frozenset(("answer", "finish", "over"))
"""Outcomes by which a policy ends the episode."""
_GONE = frozenset(("sandbox_lost", "session_ended", "unknown_session"))
"""Errors after which nothing can run in the session."""
_DONE_IN_TURN = re.compile(rf"<tool_response>\n(?:{re.escape(RECORDED)}|{re.escape(OVER)})")
_HOW = (
    'an action is {"type": "call_tool", "tool_name": NAME, "arguments": {...}}, {"type": "list_tools"},'
    ' {"type": "reward"}, or {"content": TEXT} in the dialect of the instance'
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call a tool."""

    tool: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Say:
    """Send a policy's text, in the instance's dialect."""

    content: str


@dataclass(frozen=True, slots=True)
class ListTools:
    """Describe the tools; this is not a step of the session."""


@dataclass(frozen=True, slots=True)
class AskReward:
    """End the episode, or ask again for a reward that was pending."""


Action = ToolCall | Say | ListTools | AskReward


def action_of(value: Mapping[str, object]) -> Action:
    """Parse an action. Raises MalformedRequest."""
    match value:
        case {"type": "list_tools"}:
            return ListTools()
        case {"type": "reward"}:
            return AskReward()
        case {"tool_name": str(tool), **rest} if rest.get("type", "call_tool") == "call_tool":
            arguments = rest.get("arguments")
            if arguments is None or isinstance(arguments, Mapping):
                return ToolCall(tool, arguments or {})
        case {"content": str(content)}:
            return Say(scalar_text(content))
    raise MalformedRequest(f"action: {_HOW}")


def is_over(result: ActionResult) -> bool:
    """Whether the episode has ended: the policy ended it, or nothing can run in the session any more."""
    facts = result.facts
    return (
        facts["outcome"] in _OVER
        or facts["tool"] == "finish"
        or result.error_code in _GONE
        or (facts["tool"] in ("bash", "calls") and _DONE_IN_TURN.search(result.text) is not None)
    )


def observed(
    observation: Mapping[str, object], metadata: Mapping[str, object], reward: RewardAnswer | None = None
) -> dict[str, object]:
    """An observation in OpenEnv's form; with a reward the episode is done.

    A masked reward is null, because any number would count. `metadata` is inside the observation too, where older
    clients look for it.
    """
    given = dict(metadata)
    worth: float | None = None
    if reward is not None:
        mask = reward.verdict.mask
        given |= {"verdict": reward.verdict.name.value, "mask": mask, "grade": reward_fields(reward)}
        worth = None if mask else float(reward.reward)
    return {
        "observation": {**observation, "metadata": given},
        "reward": worth,
        "done": reward is not None,
        "metadata": given,
    }


def error(status: int, refused: Mapping[str, object]) -> dict[str, object]:
    """A refused request as an error message, which the client raises as an exception."""
    code = "VALIDATION_ERROR" if 400 <= status < 500 else "EXECUTION_ERROR"
    if status in (429, 503):
        code = "CAPACITY_REACHED"
    message = f"{refused.get('code', status)}: {refused.get('detail', 'no answer')}"
    return failed(code, message, refused=dict(refused))


def failed(code: str, message: str, **more: object) -> dict[str, object]:
    """An error message; `code` is one of OpenEnv's."""
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def _object(properties: Mapping[str, object], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT, _FREE = {"type": "string"}, {"type": "object"}
SCHEMAS: Mapping[str, object] = {
    "action": {
        "oneOf": [
            _object(
                {"type": {"const": "call_tool"}, "tool_name": _TEXT, "arguments": _FREE, "metadata": _FREE}, "tool_name"
            ),
            _object({"type": {"const": "list_tools"}, "metadata": _FREE}, "type"),
            _object({"type": {"const": "reward"}, "metadata": _FREE}, "type"),
            _object({"content": _TEXT, "metadata": _FREE}, "content"),
        ]
    },
    "observation": _object(
        {
            "content": _TEXT,
            "tool_name": _TEXT,
            "result": _TEXT,
            "error": {"type": ["object", "null"]},
            "tools": {"type": "array", "items": _FREE},
            "metadata": _FREE,
        },
        "metadata",
    ),
    "reset_observation": _object(
        {"content": _TEXT, "sid": _TEXT, "instance_id": _TEXT, "workspace": _TEXT, "metadata": _FREE}, "content", "sid"
    ),
    "state": _object(
        {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}, "state": _TEXT}, "step_count"
    ),
}
METADATA: Mapping[str, object] = {
    "name": "sandbox-server",
    "description": "Repositories with a task, a sandbox each: software engineering and code search.",
    "version": __version__,
}
