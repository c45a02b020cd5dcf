"""Worth that changes along half a cosine with the length of the way, apart for good and bad answers."""

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from sandbox_server.grading.localization.base import LocalizationReward, RewardContext
from sandbox_server.grading.localization.multilevel import MultilevelArgs, multilevel

_OVER = -10.0
_TURNS, _CALLS, _BEST, _GOOD = 10, 5, 5.0, 0.5  # the documented form's own


class Args(MultilevelArgs):
    """The weights are those of the multilevel F1 that tells good answers from bad ones."""

    variant: Literal["v1", "v3"] = "v1"
    """v1: the documented form, without arguments but the weights; v3: what follows."""
    loc_threshold: float = Field(1.5, ge=0, le=300)
    """From this F1 on an answer is good."""
    max_turns: int = Field(8, ge=1, le=1000)
    max_avg_tool_calls: float = Field(10, gt=0, le=1000)
    ideal_tool_calls: float = Field(5, gt=0, le=1000)
    """Calls a turn that are worth most."""
    max_tokens: int = Field(16384, ge=1)
    """Response tokens of the whole rollout."""
    max_reward: float = Field(5.0, ge=1, le=100)
    min_reward: float = Field(-5.0, ge=-100, le=0)
    use_turn_reward: bool = True
    use_tool_reward: bool = True
    use_length_reward: bool = False
    """Needs the trainer's token counts."""

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
        "c(t, T, a, b) = a + (b - a)/2 (cos(πt/T) + 1). v1: c(turns, 10, 0, ±5) + c(calls / turns, 5, 0, ±5); +5 where"
        " the multilevel F1 is at least 0.5. v3, n = max(1, turns - 1), x = calls / n: c(n, `max_turns`, 0, best or"
        " worst) and, of a good answer, x from 1 at 0 to `max_reward` at `ideal_tool_calls` and back to 1 at"
        " `max_avg_tool_calls`, of a bad one c(x, `max_avg_tool_calls`, 0, `min_reward`); tokens as turns"
    ),
    edges=(
        "v1: more than 10 turns, or more than 5 calls a turn: -10 for that part; a good answer without any call has the"
        " whole tool part. v3: past a maximum 0 for that part."
    ),
    needs_events=True,
    needs_tokens=lambda args: args.use_length_reward,
)
