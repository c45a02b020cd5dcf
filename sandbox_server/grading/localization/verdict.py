"""Expresses a score as a verdict. Pure."""

from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.grading.localization.measures import level_f_beta, level_found
from sandbox_server.verdicts import Score, Verdict, VerdictName


def verdict_of(score: Score, truth: Truth) -> Verdict:
    """Resolved if exactly the right files were named (F1 of 1); counts as one test."""
    if score.answer is None:
        name, cause = VerdictName.NO_ANSWER, "The session ended without an answer."
    else:
        exact = level_f_beta(score.answer, truth, "file") == 1.0
        name = VerdictName.RESOLVED if exact else VerdictName.UNRESOLVED
        named = set(level_found(score.answer, truth, "file"))
        hits = len(named.intersection(truth.files))
        cause = f"The answer names {hits} of {len(truth.files)} files, and {len(named) - hits} others."
    return Verdict(
        name,
        mask=False,
        cause=cause,
        f2p_count=int(name is VerdictName.RESOLVED),
        f2p_total=1,
        patch_is_none=True,
        score=score,
    )
