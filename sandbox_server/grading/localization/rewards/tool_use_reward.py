"""Tool calls for each turn: what makes a policy call several at once."""

from typing import Literal

from pydantic import Field, model_validator

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext

_PENALTY = -5.0
_MOST_V3 = 5.0


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    variant: Literal["v1", "v3"] = "v1"
    """v1: the documented form; v3: `max_tool_use` is 5 unless it is given."""
    cap: float = Field(50.0, gt=0, le=1000)
    """Greatest value without `max_tool_use`. Low, or `max_tool_use`, or all calls in one turn pay."""
    max_tool_use: float | None = Field(None, gt=0, le=1000)
    """Set: min(calls / turns, this) / this, the answer's turn not counted."""
    reduction: Literal["mean", "sum"] = "mean"
    """sum: calls of all turns instead of calls / turns; needs `max_tool_use`."""
    clamp: bool = False
    """1 for any call at all."""
    penalize: bool = False
    """Without a call -5 instead of 0."""

    @model_validator(mode="after")
    def _all_in_force(self) -> "Args":
        if self.most is None and self.reduction == "sum":
            raise ValueError("reduction: sum needs max_tool_use")
        if self.most is not None and "cap" in self.model_fields_set:
            raise ValueError("cap and max_tool_use (5 in variant v3) are two bounds; one of them")
        return self

    @property
    def most(self) -> float | None:
        """`max_tool_use` of the variant."""
        return _MOST_V3 if self.variant == "v3" and self.max_tool_use is None else self.max_tool_use


def tool_use_reward(context: RewardContext, args: Args) -> float:
    """Return calls a turn, whole or as a part of `max_tool_use`."""
    assert context.events is not None  # needs_events
    turns, calls = context.events.turn_count, context.events.call_count
    if not calls:
        return _PENALTY if args.penalize else 0.0
    if args.clamp:
        return 1.0
    if args.most is None:
        return min(calls / turns, args.cap)
    used = calls if args.reduction == "sum" else calls / max(1, turns - 1)
    return min(used, args.most) / args.most


REWARD = LocalizationReward(
    tool_use_reward,
    Args,
    bounds=lambda args: (
        _PENALTY if args.penalize else 0.0,
        1.0 if args.clamp or args.most is not None else args.cap,
    ),
    formula=(
        "min(calls / turns, `cap`); with `max_tool_use` = m: min(calls / max(1, turns - 1), m) / m, or with"
        " `reduction: sum` min(calls, m) / m"
    ),
    edges="No call, or no turn: 0, -5 with `penalize`. `clamp`: 1 for any call.",
    needs_events=True,
)
