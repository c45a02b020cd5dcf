"""Types of the service's answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sandbox_client.errors import BadAnswer
from sandbox_client.timeouts import Timeouts


@dataclass(frozen=True)
class AnswerError:
    """Why an observation's text is from the service, not from the sandbox; branch on `code`."""

    code: str
    detail: str


@dataclass(frozen=True)
class Observation:
    """The text for the policy. `error` is set if the service could not run the action, for instance a lost sandbox."""

    content: str
    error: AnswerError | None = None

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Observation:
        """Parse an answer. Raises BadAnswer: no `content` string."""
        content = body.get("content")
        if not isinstance(content, str):
            raise BadAnswer("the answer to an action holds no content")
        error = body.get("error")
        if not isinstance(error, Mapping):
            return cls(content)
        return cls(content, AnswerError(str(error.get("code", "")), str(error.get("detail", ""))))


@dataclass(frozen=True)
class NextStep:
    """The step that follows in a task of several steps. It may not begin if this session's reward is too low."""

    instance_id: str
    """To be started with `after`: this session."""
    number: int
    of: int
    problem_statement: str
    min_reward: Mapping[str, float]
    """Key of this session's rewards -> least value."""

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> NextStep | None:
        """The step in an answer to the end of a session, if there is one. Raises BadAnswer: a field is missing."""
        step = body.get("next")
        if step is None:
            return None
        names = [field.name for field in fields(cls)]
        if not isinstance(step, Mapping) or any(name not in step for name in names):
            raise BadAnswer("the next step in the answer lacks one of its fields")
        return cls(**{name: step[name] for name in names})


@dataclass(frozen=True)
class CommandResult:
    """Result of one command of a batch."""

    exit_code: int | None
    """None: it was killed at its timeout, or did not run."""
    stdout: str
    stderr: str
    truncated: bool
    timed_out: bool
    wall_ms: float
    queued_ms: float
    error: str = ""
    """Why the command could not run, if the command is not at fault; then the result says nothing about the policy."""

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> CommandResult:
        """Parse a result. Raises BadAnswer: a field is missing."""
        names = [field.name for field in fields(cls)]
        if not isinstance(body, Mapping) or any(name not in body for name in names):
            raise BadAnswer("a result of a batch lacks one of its fields")
        return cls(**{name: body[name] for name in names})


@dataclass(frozen=True)
class Reward:
    """A reward and its verdict, with the field names of the wire format.

    If `mask` is true, the reward says nothing about the policy: leave the sample out of the loss.
    """

    reward: float
    verdict: str
    mask: bool
    cause: str
    receipt: str
    """Id of the stored record, for GET /v1/receipts/{id}; "" if nothing was stored."""
    f2p_count: int
    f2p_total: int
    p2p_count: int
    p2p_total: int
    resolved: bool
    patch_is_None: bool
    patch_exists: bool
    patch_successfully_applied: bool
    patch_succesfully_applied: bool
    """The protocol's misspelt duplicate, with the same value."""
    items: Mapping[str, float] = field(default_factory=dict)
    """For code search tasks: unweighted value of each reward function of the composition, by name."""

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> Reward:
        """Parse an answer; no defaults, which could be wrong rewards.

        Raises:
            BadAnswer: a field is missing, not finite or of the wrong type.
        """
        values: dict[str, Any] = {}
        for one in fields(cls):
            if one.name == "items":
                continue
            value = body.get(one.name)
            if not _fits(str(one.type), value):
                raise BadAnswer(f"the reward answer's {one.name} is not a {one.type}")
            values[one.name] = value
        return cls(**values, items=_items(body.get("items")))

    def to_wire(self) -> dict[str, Any]:
        """The answer as `from_wire` reads it: JSON values only."""
        items = [{"fn": name, "value": value} for name, value in self.items.items()]
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, "items": items}


def ask_again_within_s(verdict: object, receipt: object, bounds: Timeouts) -> float:
    """How long to repeat the reward request that got this answer; 0.0: the answer is final.

    A verdict `infra` without a stored record is a temporary fault, such as an unavailable database.
    """
    if verdict == "pending":
        return bounds.reward_total_s
    return bounds.reward_retry_s if verdict == "infra" and not receipt else 0.0


def _items(listed: object) -> dict[str, float]:
    """Parse the items to values by name; {} if there are none. Raises BadAnswer: an item is malformed."""
    if not listed:
        return {}
    if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
        raise BadAnswer("the reward answer's items are not a list of objects")
    try:
        return {str(item["fn"]): float(item["value"]) for item in listed}
    except (KeyError, TypeError, ValueError):
        raise BadAnswer("an item of the reward answer has no name or no number") from None


def _fits(type_name: str, value: object) -> bool:
    if isinstance(value, bool):  # bool is a subclass of int
        return type_name == "bool"
    if type_name == "float":
        return isinstance(value, (int, float)) and math.isfinite(value)
    return type(value).__name__ == type_name
