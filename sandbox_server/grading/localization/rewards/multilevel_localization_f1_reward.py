"""Weighted sum of the F1 of files, of classes and of functions."""

from sandbox_server.grading.localization.base import LocalizationReward
from sandbox_server.grading.localization.multilevel import MultilevelArgs, multilevel

REWARD = LocalizationReward(
    multilevel,
    MultilevelArgs,
    bounds=lambda args: (0.0, args.greatest),
    formula="sum over levels of `<level>_level_weight` x F_beta(level); `normalise`: divided by the sum of the weights",
    edges=(
        "A level with nothing to find is left out, whatever was named there; but the file level always counts, as in"
        " `file_localization_f1_reward`. No answer: 0. `normalise` without any weight: 0."
    ),
)
