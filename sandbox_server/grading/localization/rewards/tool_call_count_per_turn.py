"""The mean number of tool calls in turns that have any, relative to a bound."""

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    max: float = Field(5.0, gt=0, le=1000)
    """Mean from which on the value is 1."""


def tool_call_count_per_turn(context: RewardContext, args: Args) -> float:
    """Return the mean number of calls in turns that have any, divided by `max`; at most 1."""
    assert context.events is not None  # needs_events
    counts = [len(turn.calls) for turn in context.events.turns if turn.calls]
    return min(args.max, sum(counts) / len(counts)) / args.max if counts else 0.0


REWARD = LocalizationReward(
    tool_call_count_per_turn,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="min(`max`, mean calls of the turns that have calls) / `max`",
    edges="No call: 0. Turns without a call, such as the answer, do not lower the value.",
    needs_events=True,
)
