"""The tests of a verdict as a page shows them: which failed, which passed, and the log's lines about each."""

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Results:
    """One of a row's two lists of tests."""

    name: str
    """F2P or P2P."""
    count: int
    """Number of tests of the list that passed."""
    total: int
    passed: tuple[str, ...]
    """Their names; empty if the instance's row has changed since the grading, or was removed."""
    failed: tuple[str, ...]
    excerpts: Mapping[str, str]
    """Failed test -> the lines of the log about it."""


def results_of(verdict: Verdict, task: TaskInstance | None) -> list[Results]:
    """Both lists; without those that are empty. `task`: the row, None if it was removed."""
    f2p, p2p = (task.fail_to_pass, task.pass_to_pass) if task else ((), ())
    lists = (
        ("F2P", verdict.f2p_count, verdict.f2p_total, f2p, verdict.f2p_failed),
        ("P2P", verdict.p2p_count, verdict.p2p_total, p2p, verdict.p2p_failed),
    )
    return [
        Results(name, count, total, _passed(row, failed, total, verdict.quarantined), failed, verdict.excerpts)
        for name, count, total, row, failed in lists
        if total
    ]


def _passed(row: tuple[str, ...], failed: tuple[str, ...], total: int, left_out: tuple[str, ...]) -> tuple[str, ...]:
    out, bad = frozenset(left_out), frozenset(failed)
    counted = [test for test in row if test not in out]
    if len(counted) != total or not bad.issubset(counted):
        return ()
    return tuple(test for test in counted if test not in bad)
