"""Lines that an answer names against lines that the patch changes."""

from typing import Literal

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import hunk_lines, line_iou


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    truth: Literal["changed", "hunks"] = "changed"
    """changed: old-side changed lines, an insertion after line n as n and n + 1; hunks: whole hunks with context."""
    empty: float = Field(1.0, ge=0, le=1)
    """When there is nothing to find and an answer names nothing."""


def line_localization_reward(context: RewardContext, args: Args) -> float:
    """Return the lines in both over the lines in either."""
    if context.answer is None:
        return 0.0
    truth = hunk_lines(context.truth) if args.truth == "hunks" else context.truth.lines
    added = set(context.truth.added_files)
    found = {path: spans for path, spans in context.answer.lines.items() if path not in added}
    return line_iou(found, truth, empty=args.empty)


REWARD = LocalizationReward(
    line_localization_reward,
    Args,
    bounds=lambda _: (0.0, 1.0),
    formula="lines named and true / lines named or true, over all files, after spans that overlap were merged",
    edges="No answer, or one without lines: 0. A reversed span is none. Nothing to find and nothing named: `empty`.",
)
