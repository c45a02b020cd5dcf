"""Tool calls per turn, which rewards several calls at once."""

from typing import Literal

from pydantic import Field, model_validator

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext

_PENALTY = -5.0
_MOST_V3 = 5.0


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    variant: Literal["v1", "v3"] = "v1"
    """v1: the documented form; v3: `max_tool_use` defaults to 5."""
    cap: float = Field(50.0, gt=0, le=1000)
    """Highest value without `max_tool_use`. With a high cap, many calls in a single turn pay best."""
    max_tool_use: float | None = Field(None, gt=0, le=1000)
    """If set, the value is min(calls / turns, this) / this, and the turn of the answer does not count."""
    reduction: Literal["mean", "sum"] = "mean"
    """mean: calls / turns; sum: the calls of all turns, which needs `max_tool_use`."""
    clamp: bool = False
    """Give 1 for any number of calls."""
    penalize: bool = False
    """Give -5 instead of 0 if there is no call."""

    @model_validator(mode="after")
    def _all_in_force(self) -> "Args":
        if self.most is None and self.reduction == "sum":
            raise ValueError("reduction: sum needs max_tool_use")
        if self.most is not None and "cap" in self.model_fields_set:
            raise ValueError("cap and max_tool_use (5 in variant v3) exclude each other; leave one of them out")
        return self

    @property
    def most(self) -> float | None:
        """`max_tool_use`, or its default in this variant."""
        return _MOST_V3 if self.variant == "v3" and self.max_tool_use is None else self.max_tool_use


def tool_use_reward(context: RewardContext, args: Args) -> float:
    """Return the calls per turn, or their ratio to `max_tool_use`."""
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
        "min(calls / turns, `cap`); with `max_tool_use` = m: min(calls / max(1, turns - 1), m) / m, with"
        " `reduction: sum` min(calls, m) / m"
    ),
    edges="No call: 0, with `penalize` -5. `clamp`: 1 for any number of calls.",
    needs_events=True,
)
