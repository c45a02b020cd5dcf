"""1 if any tool was called."""

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext


def turns_with_tool_calls(context: RewardContext, args: RewardArgs) -> float:
    """Return 1 if any turn has a call."""
    assert context.events is not None  # needs_events
    return float(context.events.call_count > 0)


REWARD = LocalizationReward(
    turns_with_tool_calls,
    RewardArgs,
    bounds=lambda _: (0.0, 1.0),
    formula="1 if any turn has a call, else 0",
    edges="No turn: 0.",
    needs_events=True,
)
