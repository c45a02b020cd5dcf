"""Rewards and scores in responses. Not a plugin, hence the underscore."""

from dataclasses import asdict

from pydantic import BaseModel, ConfigDict

from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.verdicts import Score


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ShownItem(_Shown):
    """One item of a composed reward."""

    fn: str
    value: float
    """Before its weight is applied."""
    weight: float
    parts: dict[str, float]
    """The components of the value."""


class ShownAnswer(_Shown):
    """The parsed answer, as paths in the base tree."""

    format: str
    """One of files, file_list, fenced, structured, lines."""
    files: list[str]
    modules: list[str]
    entities: list[str]
    lines: dict[str, list[tuple[int, int]]]
    well_formed: bool
    """It is the message's only answer, is complete and not empty, and was parsed entirely."""
    problems: list[str]
    """The parts that were left out, and why."""


class ShownScore(_Shown):
    """The score of an answer and of the rollout's turns."""

    items: list[ShownItem]
    answer: ShownAnswer | None
    """null: there was no answer."""
    steps: list[float]
    """The total for each turn; only with a discount."""
    flags: list[str]
    """unanswerable, no_modules, no_entities."""


def score_fields(score: Score) -> dict[str, object]:
    """The fields of `ShownScore`."""
    fields = asdict(score)
    return {name: fields[name] for name in ShownScore.model_fields}


def reward_fields(answer: RewardAnswer) -> dict[str, object]:
    """The fields of a reward as /compute_reward answers them."""
    verdict = answer.verdict
    scored = {} if verdict.score is None else score_fields(verdict.score)
    return {
        "reward": float(answer.reward),
        "f2p_count": verdict.f2p_count,
        "f2p_total": verdict.f2p_total,
        "p2p_count": verdict.p2p_count,
        "p2p_total": verdict.p2p_total,
        "resolved": verdict.resolved,
        "patch_is_None": verdict.patch_is_none,
        "patch_exists": verdict.patch_exists,
        "patch_successfully_applied": verdict.patch_applied,
        "patch_succesfully_applied": verdict.patch_applied,
        "verdict": verdict.name.value,
        "mask": verdict.mask,
        "cause": verdict.cause,
        "receipt": answer.receipt,
        **scored,
    }
