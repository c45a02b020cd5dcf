"""Ranked answers: how much of the truth is among the first k."""

from typing import Literal

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import level_found, level_truth


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    k: int = Field(5, ge=1, le=1000)
    level: Literal["file", "module", "entity"] = "file"
    all: bool = False
    """1 if the whole truth is there, else 0 (Acc@k as LocAgent has it)."""


def recall_at_k(context: RewardContext, args: Args) -> float:
    """Return the part of the truth that the first k name."""
    truth = set(level_truth(context.truth, args.level))
    if context.answer is None or not truth:
        return 0.0
    hits = truth.intersection(level_found(context.answer, context.truth, args.level)[: args.k])
    return float(hits == truth) if args.all else len(hits) / len(truth)


REWARD = LocalizationReward(
    recall_at_k,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="those to find among the first `k` named / those to find; with `all`: 1 if that is 1, else 0",
    edges="No answer, or a level without truth: 0. Order is that of first mention. Meant for evaluation.",
)
