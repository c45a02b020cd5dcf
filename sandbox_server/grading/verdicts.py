"""Verdicts without a test run, and the test totals that every verdict holds."""

from sandbox_server.catalogue.instance import SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.base import GradeRequest
from sandbox_server.verdicts import Verdict, VerdictName


def totals(instance: TaskInstance) -> tuple[int, int]:
    """(f2p_total, p2p_total) from the row; (1, 0) for a grader that judges by an exit code."""
    if isinstance(instance.grader, SwebenchGrader | SweproGrader):
        return len(instance.fail_to_pass), len(instance.pass_to_pass)
    return 1, 0


def ungraded(request: GradeRequest, name: VerdictName, *, mask: bool, cause: str) -> Verdict:
    """A verdict without a test run: no test counts as passed."""
    f2p_total, p2p_total = totals(request.instance)
    return Verdict(
        name,
        mask,
        cause,
        f2p_total=f2p_total,
        p2p_total=p2p_total,
        patch_is_none=request.patch is None,
        patch_exists=bool(request.patch),
    )
