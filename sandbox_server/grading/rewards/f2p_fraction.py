"""The example reward of the protocol document."""

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Reward
from sandbox_server.verdicts import Verdict


def f2p_fraction(instance: TaskInstance, verdict: Verdict) -> float:
    """f2p_count / f2p_total, 0.0 to 1.0; kept tests (P2P) do not count.

    Without any F2P test: 1.0 if resolved, else 0.0. A verdict without a test run has counts of 0, hence 0.0.
    """
    if verdict.f2p_total == 0:
        return float(verdict.resolved)
    return verdict.f2p_count / verdict.f2p_total


REWARD: Reward = f2p_fraction
