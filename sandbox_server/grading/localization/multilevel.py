"""F-beta at all levels, for rewards based on it."""

from collections.abc import Mapping

from pydantic import Field

from sandbox_server.grading.localization.base import RewardArgs, RewardContext
from sandbox_server.grading.localization.measures import LEVELS, level_f_beta, level_truth


class MultilevelArgs(RewardArgs):
    """Weights and shape; also used in other rewards' arguments."""

    file_level_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the files' F-beta."""
    module_level_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the classes' F-beta."""
    entity_level_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the functions' F-beta."""
    beta: float = Field(1.0, gt=0, le=100)
    """Above 1 favours recall, below 1 precision."""
    normalise: bool = False
    """Divide by the weights of the levels that have a ground truth, so that every instance can reach 1."""
    empty: float = Field(1.0, ge=0, le=1)
    """Value of the file level if there is no file to find and none was named."""

    @property
    def greatest(self) -> float:
        """Score of a perfect answer to a task with all levels."""
        total = self.file_level_weight + self.module_level_weight + self.entity_level_weight
        return float(total > 0) if self.normalise else total


def multilevel(context: RewardContext, args: MultilevelArgs) -> tuple[float, Mapping[str, float]]:
    """The weighted sum, and the F-beta of each level; levels without ground truth are left out."""
    weights = {level: float(getattr(args, f"{level}_level_weight")) for level in LEVELS}
    parts = {
        f"{level}_f1": level_f_beta(context.answer, context.truth, level, beta=args.beta, empty=args.empty)
        for level in LEVELS
        if level == "file" or level_truth(context.truth, level)
    }
    total = sum(weights[level] * parts[f"{level}_f1"] for level in LEVELS if f"{level}_f1" in parts)
    if args.normalise:
        counted = sum(weights[level] for level in LEVELS if f"{level}_f1" in parts)
        total = total / counted if counted else 0.0
    return total, parts
