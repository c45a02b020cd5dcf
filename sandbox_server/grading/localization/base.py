"""Interface of code search rewards: what a reward gets, and a pure function with its arguments and bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.verdicts import Answer


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the policy."""

    calls: tuple[str, ...] = ()
    """Names of the called tools, in order; () for an answer, or if nothing could be parsed."""
    prompt_tokens: int | None = None
    """None if the trainer did not report it; the same for the next field."""
    response_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """The turns that led to the answer."""

    turns: tuple[Turn, ...] = ()
    wall_clock_s: float | None = None

    @property
    def turn_count(self) -> int:
        """Number of messages of the policy, the answer included."""
        return len(self.turns)

    @property
    def call_count(self) -> int:
        """Number of tool calls in all turns."""
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def response_tokens(self) -> int | None:
        """Tokens of all turns; None unless each is known."""
        known = [turn.response_tokens for turn in self.turns if turn.response_tokens is not None]
        return sum(known) if len(known) == len(self.turns) else None


@dataclass(frozen=True, slots=True)
class RewardContext:
    """One finished rollout."""

    answer: Answer | None
    """None: it ended without an answer."""
    truth: Truth
    events: Events | None = None
    """None: only an answer was given."""
    instance_id: str = ""


class RewardArgs(BaseModel):
    """The arguments of one reward, with their defaults; unknown arguments are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


Worth = float | tuple[float, Mapping[str, float]]
"""A value, or a value and its components."""


@dataclass(frozen=True, slots=True)
class LocalizationReward:
    """A plugin's REWARD."""

    score: Callable[[RewardContext, Any], Worth]
    """Compute the reward from the context and `args`. Pure; never raises because of what a policy did."""
    args: type[RewardArgs]
    bounds: Callable[[Any], tuple[float, float]]
    """Lowest and highest value with the given arguments."""
    formula: str
    """Description in one line."""
    edges: str
    """Value in cases that the formula does not cover; one line."""
    needs_events: bool = False
    """Whether it needs the turns, not only an answer."""
    needs_tokens: Callable[[Any], bool] = lambda _: False
    """Whether, with the given arguments, it needs each turn's token count from the trainer."""
