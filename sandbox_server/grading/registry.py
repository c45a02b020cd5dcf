"""Loads this package's plugins: graders by `kind`, rewards by the name used in SANDBOX_REWARD."""

from collections.abc import Callable
from typing import cast

from sandbox_server import plugins
from sandbox_server.grading import graders, rewards
from sandbox_server.grading.base import Grader, Judging, Reward


def load_graders(judging: Judging | None = None) -> dict[str, Grader]:
    """Load each grader, by the `kind` of instances it takes; nothing heavy starts before the first grading."""
    judging = judging or Judging()
    found = plugins.discover(graders, "GRADER")
    return {kind: cast(Callable[[Judging], Grader], grader)(judging) for kind, grader in found.items()}


def load_rewards() -> dict[str, Reward]:
    """Load each reward function, by name."""
    return {name: cast(Reward, reward) for name, reward in plugins.discover(rewards, "REWARD").items()}
