"""F1 of the functions and methods that an answer names."""

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import level_f_beta


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    entity_level_weight: float = Field(1.0, ge=0, le=100)
    """Highest value."""
    beta: float = Field(1.0, gt=0, le=100)
    """Above 1 favours recall, below 1 precision."""
    empty: float = Field(0.0, ge=0, le=1)
    """F-beta if there is nothing to find and nothing was named."""


def entity_localization_f1_reward(context: RewardContext, args: Args) -> float:
    """Return weight times F-beta; 0 without an answer."""
    return args.entity_level_weight * level_f_beta(
        context.answer, context.truth, "entity", beta=args.beta, empty=args.empty
    )


REWARD = LocalizationReward(
    entity_localization_f1_reward,
    Args,
    bounds=lambda args: (0.0, args.entity_level_weight),
    formula="`entity_level_weight` x F_beta(functions named, functions to find); F1 = 2PR/(P+R)",
    edges=(
        "No answer, or no hit: 0. Nothing to find: `empty` if nothing was named, else 0. Files that the patch creates"
        " are ignored. A nested function counts as its outer one."
    ),
)
