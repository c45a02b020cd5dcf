"""Partial credit for fixes that break nothing, excluding tests that a stub also passes."""

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Reward
from sandbox_server.grading.rewards.f2p_fraction import f2p_fraction
from sandbox_server.verdicts import Verdict


def f2p_if_p2p_kept(instance: TaskInstance, verdict: Verdict) -> float:
    """f2p_count / f2p_total, 0.0 to 1.0, if every P2P test still passes, else 0.0; without P2P tests they all do.

    Also 0.0 if the verdict is not resolved, and a stub passes each F2P test that passed (by the certificate).
    """
    if verdict.p2p_count != verdict.p2p_total:
        return 0.0
    passed = set(instance.fail_to_pass) - set(verdict.f2p_failed)
    if verdict.f2p_stubs and not verdict.resolved and passed <= set(verdict.f2p_stubs):
        return 0.0
    return f2p_fraction(instance, verdict)


REWARD: Reward = f2p_if_p2p_kept
