"""Rewards over the steps of a task: both strategies, and what ends the task."""

import pytest

from sandbox_server.catalogue.steps import Step
from sandbox_server.grading.graders.harbor import scored
from sandbox_server.scoring.steps import refusal, with_steps
from sandbox_server.verdicts import Verdict, VerdictName


def judged(**rewards: float) -> Verdict:
    score = scored(rewards)
    name = VerdictName.RESOLVED if score.total >= 1 else VerdictName.UNRESOLVED
    return Verdict(name, mask=False, cause="judged", score=score)


def played(strategy: str, *verdicts: Verdict) -> Verdict:
    """The verdict on the last of these steps, s1, s2, ..."""
    before, verdict = None, verdicts[0]
    for number, own in enumerate(verdicts, start=1):
        step = Step(name=f"s{number}", number=number, of=len(verdicts), strategy=strategy)  # type: ignore[arg-type]
        verdict = with_steps(step, own, before)
        before = verdict.score
    return verdict


NO_RESULTS = Verdict(VerdictName.NO_RESULTS, mask=False, cause="it wrote no reward")


@pytest.mark.parametrize(
    ("strategy", "verdicts", "reward", "name"),
    [
        ("mean", [judged(reward=1)], 1.0, VerdictName.RESOLVED),
        ("mean", [judged(reward=1), judged(reward=1), judged(reward=1)], 1.0, VerdictName.RESOLVED),
        ("mean", [judged(reward=0.5), judged(reward=1)], 0.75, VerdictName.UNRESOLVED),
        ("final", [judged(reward=0.5), judged(reward=1)], 1.0, VerdictName.RESOLVED),
        ("final", [judged(reward=1), judged(reward=0)], 0.0, VerdictName.UNRESOLVED),
        # as Harbor: the mean of each key, and 0 for one that a step lacks
        ("mean", [judged(reward=1, tests=4), judged(reward=1)], 1.0, VerdictName.RESOLVED),
        ("mean", [judged(a=1, b=0), judged(a=1, b=1)], 0.75, VerdictName.UNRESOLVED),
        ("mean", [judged(a=1), judged(b=1)], 0.5, VerdictName.UNRESOLVED),
        # unlike Harbor, which leaves such a step out: the policy would gain by breaking its tests
        ("mean", [judged(reward=1), NO_RESULTS], 0.5, VerdictName.NO_RESULTS),
        ("final", [judged(reward=1), NO_RESULTS], 0.0, VerdictName.NO_RESULTS),
    ],
)
def test_the_reward_of_the_steps_so_far(
    strategy: str, verdicts: list[Verdict], reward: float, name: VerdictName
) -> None:
    """A step counts twice or not at all, or one strategy gives what the other should."""
    verdict = played(strategy, *verdicts)
    assert verdict.score is not None
    assert (verdict.score.total, verdict.name) == (pytest.approx(reward), name)


def test_each_item_tells_the_value_of_each_step() -> None:
    """The rewards of earlier steps are read from there: with the mean in their place, a step would count twice."""
    verdict = played("mean", judged(reward=1, speed=2), judged(reward=0.5), judged(reward=0, speed=4))
    assert verdict.score is not None
    assert {item.fn: (item.value, item.weight, item.parts) for item in verdict.score.items} == {
        "reward": (0.5, 1.0, {"s1": 1.0, "s2": 0.5, "s3": 0.0}),
        "speed": (2.0, 0.0, {"s1": 2.0, "s3": 4.0}),
    }
    assert verdict.cause == "judged; mean of 3 steps: 0.5"


@pytest.mark.parametrize(
    ("least", "verdict", "why"),
    [
        ({}, judged(reward=0), ""),
        ({"reward": 0.5}, judged(reward=0.5), ""),
        ({"reward": 0.5}, judged(reward=0.4), "reward = 0.4, below its min_reward of 0.5"),
        ({"reward": 0.5}, judged(a=1, b=1), "reward = None, below"),
        ({"a": 1, "b": 0.5}, judged(a=1, b=0.6), ""),
        ({"a": 1, "b": 0.5}, judged(a=1, b=0.4), "b = 0.4, below its min_reward of 0.5"),
        ({}, NO_RESULTS, "gave no reward: it wrote no reward"),
        ({}, Verdict(VerdictName.EMPTY_PATCH, mask=False, cause="nothing was changed"), ""),
        ({"reward": 0.1}, Verdict(VerdictName.EMPTY_PATCH, mask=False, cause="nothing was changed"), "reward = 0.0"),
        ({}, Verdict(VerdictName.EMPTY_PATCH, mask=False, cause="/app is gone", patch_is_none=True), "left no files"),
    ],
)
def test_what_ends_the_task(least: dict[str, float], verdict: Verdict, why: str) -> None:
    """A rollout goes on where Harbor ends it, or ends where Harbor goes on."""
    step = Step(name="one", number=1, of=2, next="two", min_reward=least)
    said = refusal(step, with_steps(step, verdict, None))
    assert (why in said) if why else not said, said


def test_a_masked_step_ends_the_task() -> None:
    """The reward of the whole task would rest on a verdict that says nothing."""
    masked = Verdict(VerdictName.NO_RESULTS, mask=True, cause="the host broke")
    assert "masked: the host broke" in refusal(Step(name="one", number=1, of=2), masked)
