"""A bonus for good answers and a penalty for bad ones, both shrinking with turns and tool calls along a cosine."""

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from sandbox_server.grading.localization.base import LocalizationReward, RewardContext
from sandbox_server.grading.localization.multilevel import MultilevelArgs, multilevel

_OVER = -10.0
_TURNS, _CALLS, _BEST, _GOOD = 10, 5, 5.0, 0.5  # constants of v1


class Args(MultilevelArgs):
    """The weights are those of the multilevel F1 that tells good answers from bad ones."""

    variant: Literal["v1", "v3"] = "v1"
    """v1: the documented form; takes the weights only. v3: takes the arguments below too."""
    loc_threshold: float = Field(1.5, ge=0, le=300)
    """An answer is good from this F1 on."""
    max_turns: int = Field(8, ge=1, le=1000)
    """Turns before the answer's from which on the turn part is 0."""
    max_avg_tool_calls: float = Field(10, gt=0, le=1000)
    """Calls per turn beyond which the tool part is 0."""
    ideal_tool_calls: float = Field(5, gt=0, le=1000)
    """Calls per turn at which a good answer gets the whole tool part."""
    max_tokens: int = Field(16384, ge=1)
    """Response tokens of the rollout from which on the length part is 0."""
    max_reward: float = Field(5.0, ge=1, le=100)
    """Highest value of a part, for a good answer."""
    min_reward: float = Field(-5.0, ge=-100, le=0)
    """Lowest value of a part, for a bad answer."""
    use_turn_reward: bool = True
    """Count the turn part."""
    use_tool_reward: bool = True
    """Count the tool part."""
    use_length_reward: bool = False
    """Count the length part, which needs the trainer's token counts."""

    @model_validator(mode="after")
    def _of_its_variant(self) -> "Args":
        others = self.model_fields_set - set(MultilevelArgs.model_fields) - {"variant"}
        if self.variant == "v1" and others:
            raise ValueError(f"{', '.join(sorted(others))}: only with variant: v3")
        if self.ideal_tool_calls >= self.max_avg_tool_calls:
            raise ValueError("ideal_tool_calls must be below max_avg_tool_calls")
        return self


def cosine_reward(context: RewardContext, args: Args) -> tuple[float, Mapping[str, float]]:
    """Return the sum of the parts, and each of them."""
    assert context.events is not None  # needs_events
    worth, _ = multilevel(context, args)
    parts = _documented(context, worth) if args.variant == "v1" else _later(context, args, worth)
    return sum(parts.values()), {**parts, "localization": worth}


def curve(t: float, end: float, at_end: float, at_start: float) -> float:
    """From `at_start` at t = 0 along half a cosine to `at_end` at t = `end`."""
    return at_end + (at_start - at_end) / 2 * (math.cos(math.pi * t / end) + 1)


def _documented(context: RewardContext, worth: float) -> dict[str, float]:
    assert context.events is not None  # needs_events
    turns, best = context.events.turn_count, _BEST if worth >= _GOOD else -_BEST
    calls = context.events.call_count / max(1, turns)
    return {
        "turns": _OVER if turns > _TURNS else curve(turns, _TURNS, 0.0, best),
        "tools": _OVER if calls > _CALLS else curve(calls, _CALLS, 0.0, best),
    }


def _later(context: RewardContext, args: Args, worth: float) -> dict[str, float]:
    events = context.events
    assert events is not None  # needs_events
    turns, good = max(1, events.turn_count - 1), worth >= args.loc_threshold
    best = args.max_reward if good else args.min_reward
    parts: dict[str, float] = {}
    if args.use_turn_reward:
        parts["turns"] = 0.0 if turns > args.max_turns else curve(turns, args.max_turns, 0.0, best)
    if args.use_tool_reward:
        parts["tools"] = _tools(events.call_count / turns, args, good=good)
    if args.use_length_reward:
        tokens = events.response_tokens
        assert tokens is not None  # needs_tokens
        parts["length"] = 0.0 if tokens > args.max_tokens else curve(tokens, args.max_tokens, 0.0, best)
    return parts


def _tools(calls: float, args: Args, *, good: bool) -> float:
    ideal, most = args.ideal_tool_calls, args.max_avg_tool_calls
    if calls > most:
        return 0.0
    if not good:
        return curve(calls, most, 0.0, args.min_reward)
    if calls >= ideal:
        return curve(calls - ideal, most - ideal, 1.0, args.max_reward)
    return curve(calls, ideal, args.max_reward, 1.0)


def _bounds(args: Args) -> tuple[float, float]:
    if args.variant == "v1":
        return 2 * _OVER, 2 * _BEST
    parts = args.use_turn_reward + args.use_tool_reward + args.use_length_reward
    return parts * args.min_reward, parts * args.max_reward


REWARD = LocalizationReward(
    cosine_reward,
    Args,
    bounds=_bounds,
    formula=(
        "With c(t, T, a, b) = a + (b - a)/2 (cos(πt/T) + 1), half a cosine from b at t = 0 to a at t = T. v1: c(turns,"
        " 10, 0, s) + c(calls / turns, 5, 0, s); s = 5 if the multilevel F1 is at least 0.5, else -5. v3: the sum of"
        " three parts, with n = max(1, turns - 1), x = calls / n, and s = `max_reward` for a good answer, else"
        " `min_reward`. Turns: c(n, `max_turns`, 0, s). Tools: for a good answer half a cosine from 1 at x = 0 to s at"
        " `ideal_tool_calls`, and back to 1 at `max_avg_tool_calls`; for a bad one c(x, `max_avg_tool_calls`, 0, s)."
        " Length: c(tokens, `max_tokens`, 0, s)"
    ),
    edges=(
        "v1: a part is -10 beyond 10 turns or beyond 5 calls per turn; a good answer without a call gets the whole tool"
        " part. v3: a part is 0 beyond its maximum."
    ),
    needs_events=True,
    needs_tokens=lambda args: args.use_length_reward,
)
