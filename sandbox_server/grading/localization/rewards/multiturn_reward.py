"""1 if the number of turns is within bounds."""

from pydantic import Field, model_validator

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    minimal_turns: int = Field(1, ge=0, le=1000)
    """Fewest turns."""
    maximal_turns: int | None = Field(5, ge=1, le=1000)
    """Most turns; null: any number."""

    @model_validator(mode="after")
    def _in_order(self) -> "Args":
        if self.maximal_turns is not None and self.maximal_turns < self.minimal_turns:
            raise ValueError("maximal_turns is below minimal_turns, so no rollout could earn it")
        return self


def multiturn_reward(context: RewardContext, args: Args) -> float:
    """Return 1 within the bounds, both included, else 0."""
    assert context.events is not None  # needs_events
    turns = context.events.turn_count
    return float(args.minimal_turns <= turns and (args.maximal_turns is None or turns <= args.maximal_turns))


REWARD = LocalizationReward(
    multiturn_reward,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="1 for `minimal_turns` <= turns <= `maximal_turns`, else 0",
    edges="For more than one turn: `{minimal_turns: 2, maximal_turns: null}`.",
    needs_events=True,
)
