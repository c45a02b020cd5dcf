"""The plugins of this room by name: graders by the kind of their instances, rewards by SANDBOX_REWARD."""

from collections.abc import Callable
from typing import cast

from sandbox_server import plugins
from sandbox_server.grading import graders, rewards
from sandbox_server.grading.base import Grader, Judging, Reward


def load_graders(judging: Judging | None = None) -> dict[str, Grader]:
    """Each grader once, by the `kind` of the instances it takes; nothing heavy starts before the first grading."""
    judging = judging or Judging()
    found = plugins.discover(graders, "GRADER")
    return {kind: cast(Callable[[Judging], Grader], grader)(judging) for kind, grader in found.items()}


def load_rewards() -> dict[str, Reward]:
    """Each reward function by name."""
    return {name: cast(Reward, reward) for name, reward in plugins.discover(rewards, "REWARD").items()}
