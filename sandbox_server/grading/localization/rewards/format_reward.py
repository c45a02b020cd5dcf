"""1 for an answer in the required form."""

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext

_PENALTY = -5.0


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    penalize: bool = False
    """Give -5 instead of 0."""


def format_reward(context: RewardContext, args: Args) -> float:
    """Return 1 if the message has exactly one answer, which is complete and was parsed entirely."""
    if context.answer is not None and context.answer.well_formed:
        return 1.0
    return _PENALTY if args.penalize else 0.0


REWARD = LocalizationReward(
    format_reward,
    Args,
    bounds=lambda args: (_PENALTY if args.penalize else 0.0, 1.0),
    formula="1 if the message has exactly one answer, closed, not empty, and made of locations only; else 0",
    edges="`penalize`: -5 instead of 0. Quotes, bullets, commas and absolute paths are allowed.",
)
