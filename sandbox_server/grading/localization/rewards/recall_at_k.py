"""Share of the true locations among the first k that an answer names."""

from typing import Literal

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import level_found, level_truth


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    k: int = Field(5, ge=1, le=1000)
    """How many of the named locations count, in the order of their first mention."""
    level: Literal["file", "module", "entity"] = "file"
    """file: files; module: classes; entity: functions."""
    all: bool = False
    """Give 1 only if all true locations are there, else 0 (LocAgent's Acc@k)."""


def recall_at_k(context: RewardContext, args: Args) -> float:
    """Return the share of the true locations that are among the first k."""
    truth = set(level_truth(context.truth, args.level))
    if context.answer is None or not truth:
        return 0.0
    hits = truth.intersection(level_found(context.answer, context.truth, args.level)[: args.k])
    return float(hits == truth) if args.all else len(hits) / len(truth)


REWARD = LocalizationReward(
    recall_at_k,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="(true locations among the first `k` named) / (true locations); with `all`: 1 if that is 1, else 0",
    edges="No answer, or nothing to find at the level: 0. Meant for evaluation.",
)
