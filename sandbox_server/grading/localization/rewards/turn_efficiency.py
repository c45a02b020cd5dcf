"""A bonus for few turns, if there were at least two turns and two calls."""

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext

_EACH = 0.1


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    max_turns: int = Field(5, ge=1, le=1000)
    """Turns up to which the value is 1."""


def turn_efficiency(context: RewardContext, args: Args) -> float:
    """Return 1 up to `max_turns`, 0.1 less for each further turn."""
    assert context.events is not None  # needs_events
    turns = context.events.turn_count
    if turns <= 1 or context.events.call_count <= 1:
        return 0.0
    return max(0.0, 1.0 - _EACH * max(0, turns - args.max_turns))


REWARD = LocalizationReward(
    turn_efficiency,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="1 for turns <= `max_turns`, else max(0, 1 - 0.1 (turns - `max_turns`))",
    edges="At most one turn, or at most one call: 0.",
    needs_events=True,
)
