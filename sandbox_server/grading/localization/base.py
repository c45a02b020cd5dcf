"""What a reward of code search sees, and what it is: one pure function with its arguments, bounds and words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.records import Answer


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the policy."""

    calls: tuple[str, ...] = ()
    """Names of the tools it called, in order; () for an answer, or where nothing could be parsed."""
    prompt_tokens: int | None = None
    """None: the trainer did not say; so for the next."""
    response_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """The way to the answer."""

    turns: tuple[Turn, ...] = ()
    wall_clock_s: float | None = None

    @property
    def turn_count(self) -> int:
        """Messages of the policy, the answer's included."""
        return len(self.turns)

    @property
    def call_count(self) -> int:
        """Tool calls of all turns."""
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def response_tokens(self) -> int | None:
        """Of all turns; None unless each is known."""
        known = [turn.response_tokens for turn in self.turns if turn.response_tokens is not None]
        return sum(known) if len(known) == len(self.turns) else None


@dataclass(frozen=True, slots=True)
class RewardContext:
    """One finished rollout."""

    answer: Answer | None
    """None: it ended without one."""
    truth: Truth
    events: Events | None = None
    """None: only an answer was given."""
    instance_id: str = ""


class RewardArgs(BaseModel):
    """The arguments of one reward, with their defaults; anything else in a configuration is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


Worth = float | tuple[float, Mapping[str, float]]
"""A value, or a value and what it was made of."""


@dataclass(frozen=True, slots=True)
class LocalizationReward:
    """A plugin's REWARD."""

    score: Callable[[RewardContext, Any], Worth]
    """Pure; takes the context and the `args`. Raises for nothing that a policy can cause."""
    args: type[RewardArgs]
    bounds: Callable[[Any], tuple[float, float]]
    """Least and greatest value under the given arguments."""
    formula: str
    """One line."""
    edges: str
    """What it gives where the formula says nothing; one line."""
    needs_events: bool = False
    """It cannot be told from an answer alone."""
    needs_tokens: Callable[[Any], bool] = lambda _: False
    """It cannot be told, under the given arguments, unless the trainer says how many tokens each turn had."""
