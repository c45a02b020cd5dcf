"""The number of tool calls, up to a bound."""

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    max: int = Field(5, ge=1, le=1000)
    """Highest value."""


def tool_call_count(context: RewardContext, args: Args) -> float:
    """Return the number of calls, at most `max`."""
    assert context.events is not None  # needs_events
    return float(min(args.max, context.events.call_count))


REWARD = LocalizationReward(
    tool_call_count,
    Args,
    bounds=lambda args: (0.0, float(args.max)),
    formula="min(`max`, calls)",
    edges="No call: 0.",
    needs_events=True,
)
