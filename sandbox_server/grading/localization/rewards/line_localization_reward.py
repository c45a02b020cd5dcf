"""Overlap of the lines that an answer names with those that the patch changes: intersection over union."""

from typing import Literal

from pydantic import Field

from sandbox_server.grading.localization.base import LocalizationReward, RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import hunk_lines, line_iou


class Args(RewardArgs):
    """See `docs/rewards.md`."""

    truth: Literal["changed", "hunks"] = "changed"
    """changed: the old lines that change, and for an insertion after line n both n and n + 1; hunks: whole hunks."""
    empty: float = Field(1.0, ge=0, le=1)
    """Value if there is nothing to find and the answer names nothing."""


def line_localization_reward(context: RewardContext, args: Args) -> float:
    """Return the number of lines in both, divided by the number of lines in either."""
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
    formula="(lines named and true) / (lines named or true), over all files; a line counts once",
    edges="No answer, or one without lines: 0. Reversed spans are ignored. Nothing to find and nothing named: `empty`.",
)
