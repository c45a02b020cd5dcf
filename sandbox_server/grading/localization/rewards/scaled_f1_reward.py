"""Multilevel F1, scaled by the number of tool calls per turn."""

from collections.abc import Mapping

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardContext
from sandbox_server.grading.localization.multilevel import MultilevelArgs, multilevel


class Args(MultilevelArgs):
    """The weights are those of the multilevel F1."""

    max_tool_use: float = Field(5.0, gt=0, le=1000)
    """Calls per turn that give the whole F1."""
    no_call: float = Field(-5.0, ge=-100, le=0)
    """Value without a call."""


def scaled_f1_reward(context: RewardContext, args: Args) -> tuple[float, Mapping[str, float]]:
    """Return the scaled F1, and the F1 of each level."""
    assert context.events is not None  # needs_events
    worth, parts = multilevel(context, args)
    turns, calls = context.events.turn_count, context.events.call_count
    if not calls:
        return args.no_call, parts
    scale = min(args.max_tool_use, calls / max(1, turns - 1)) / args.max_tool_use
    return worth * scale, {**parts, "scale": scale}


REWARD = LocalizationReward(
    scaled_f1_reward,
    Args,
    bounds=lambda args: (args.no_call, args.greatest),
    formula="multilevel F1 x min(`max_tool_use`, calls / max(1, turns - 1)) / `max_tool_use`",
    edges="No call: `no_call`. Levels as in `multilevel_localization_f1_reward`.",
    needs_events=True,
)
