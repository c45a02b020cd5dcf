"""An answer in the form that was asked for."""

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext

_PENALTY = -5.0


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    penalize: bool = False
    """-5 instead of 0."""


def format_reward(context: RewardContext, args: Args) -> float:
    """Return 1 for the one complete answer of a message, all of which could be read."""
    if context.answer is not None and context.answer.well_formed:
        return 1.0
    return _PENALTY if args.penalize else 0.0


REWARD = LocalizationReward(
    format_reward,
    Args,
    bounds=lambda args: (_PENALTY if args.penalize else 0.0, 1.0),
    formula="1 if the message holds exactly one answer, closed, not empty, with nothing in it that is no location",
    edges="Else 0, -5 with `penalize`. Quotes, bullets, commas and absolute paths do not spoil the form.",
)
