"""Rewards over the steps of a task: a session's reward covers all steps so far; a low one may end the task."""

import math
from dataclasses import replace

from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.steps import Step
from sandbox_server.grading.graders.harbor import scored
from sandbox_server.records import SessionRecord
from sandbox_server.verdicts import Score, Verdict, VerdictName

_JUDGED = (VerdictName.RESOLVED, VerdictName.UNRESOLVED)
_NOTHING = {"reward": 0.0}
"""The rewards of a step whose tests gave no reward."""


async def step_before(history: History, session: SessionRecord) -> SessionRecord | None:
    """The session of the step before: the nearest ancestor of another instance, with whose files `session` began.

    Raises:
        CatalogueUnavailable.
    """
    above: SessionRecord | None = session
    while above is not None and above.instance_id == session.instance_id:
        above = await history.session(above.parent) if above.parent else None
    return above


async def over_steps(history: History, session: SessionRecord, instance: TaskInstance, verdict: Verdict) -> Verdict:
    """The verdict on a session, with the rewards of the steps before it.

    Raises:
        CatalogueUnavailable.
    """
    if instance.step is None or verdict.mask:
        return verdict
    before = await step_before(history, session) if instance.step.before else None
    graded = await history.graded(before.sid) if before else None
    if instance.step.before and graded is None:
        cause = f"the verdict on the step {instance.step.before} is gone, so the steps have no reward together"
        return replace(verdict, name=VerdictName.INFRA, mask=True, cause=cause)
    return with_steps(instance.step, verdict, graded.verdict.score if graded else None)


def with_steps(step: Step, verdict: Verdict, before: Score | None) -> Verdict:
    """The verdict on a step, combined with the score `before` it; each item's parts are its values by step.

    A step whose tests gave no reward counts as 0.0, and so does a key that it lacks. Harbor leaves such a step out of
    the mean; then a policy could gain by breaking the step's tests.
    """
    own = {item.fn: item.value for item in verdict.score.items} if verdict.score else _NOTHING
    steps: dict[str, dict[str, float]] = {}
    for item in before.items if before else ():
        for name, value in item.parts.items():
            steps.setdefault(name, {})[item.fn] = value
    steps[step.name] = own
    total = own
    if step.strategy == "mean":
        keys = dict.fromkeys(key for rewards in steps.values() for key in rewards)
        total = {key: math.fsum(rewards.get(key, 0.0) for rewards in steps.values()) / len(steps) for key in keys}
    score = scored(total)
    items = [
        replace(item, parts={name: rewards[item.fn] for name, rewards in steps.items() if item.fn in rewards})
        for item in score.items
    ]
    name, cause = verdict.name, verdict.cause
    if name in _JUDGED:
        name = VerdictName.RESOLVED if score.total >= 1 else VerdictName.UNRESOLVED
    if before:
        cause += f"; {step.strategy} of {len(steps)} steps: {score.total:g}"
    return replace(verdict, name=name, cause=cause, score=replace(score, items=tuple(items)))


def refusal(step: Step, verdict: Verdict) -> str:
    """Why the step after this one may not begin; "" if it may."""
    if verdict.mask:
        return f"the reward of step {step.name} is masked: {verdict.cause}"
    if verdict.name not in (*_JUDGED, VerdictName.EMPTY_PATCH) or verdict.score is None:
        return f"the tests of step {step.name} gave no reward: {verdict.cause}"
    if verdict.patch_is_none:
        return f"step {step.name} left no files: {verdict.cause}"
    own = {item.fn: item.parts[step.name] for item in verdict.score.items if step.name in item.parts}
    for key, least in step.min_reward.items():
        if own.get(key, -math.inf) < least:
            return f"step {step.name} has {key} = {own.get(key)}, below its min_reward of {least:g}"
    return ""
