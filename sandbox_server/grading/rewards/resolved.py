"""The benchmark's own score."""

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Reward
from sandbox_server.verdicts import Verdict


def resolved(instance: TaskInstance, verdict: Verdict) -> float:
    """1.0 if all F2P and P2P tests pass, else 0.0."""
    return float(verdict.resolved)


REWARD: Reward = resolved
