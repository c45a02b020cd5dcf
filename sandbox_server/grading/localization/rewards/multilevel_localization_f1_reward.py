"""F1 at the levels of files, classes and functions together."""

from sandbox_server.grading.localization.base import LocalizationReward
from sandbox_server.grading.localization.multilevel import MultilevelArgs, multilevel

REWARD = LocalizationReward(
    multilevel,
    MultilevelArgs,
    bounds=lambda args: (0.0, args.greatest),
    formula="sum over levels of `<level>_level_weight` x F_beta(level); `normalise`: over the weights that counted",
    edges=(
        "A level without truth is left out, whatever was named there; the file level always counts, as in"
        " `file_localization_f1_reward`. No answer: 0. `normalise`, with no weight left: 0."
    ),
)
