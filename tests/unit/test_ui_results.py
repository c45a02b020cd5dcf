"""A page lists the tests that passed only if the row is still the one that was graded."""

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.ui.results import results_of
from sandbox_server.verdicts import Verdict, VerdictName

ROW = TaskInstance(
    instance_id="r__r-1",
    repo="r/r",
    sandbox=SandboxSpec(images=("unused",)),
    fail_to_pass=("a", "b", "c"),
    pass_to_pass=("d",),
)


def verdict(**values: object) -> Verdict:
    given = {"f2p_count": 1, "f2p_total": 3, "p2p_count": 1, "p2p_total": 1, "f2p_failed": ("a", "c"), **values}
    return Verdict(VerdictName.UNRESOLVED, False, "", **given)  # type: ignore[arg-type]


def test_each_list_has_what_passed_and_what_failed() -> None:
    f2p, p2p = results_of(verdict(excerpts={"a": "why"}), ROW)
    assert (f2p.name, f2p.count, f2p.total, f2p.passed, f2p.failed) == ("F2P", 1, 3, ("b",), ("a", "c"))
    assert (p2p.name, p2p.passed, p2p.failed) == ("P2P", ("d",), ())
    assert f2p.excerpts == {"a": "why"}


def test_quarantined_tests_did_not_pass() -> None:
    f2p, _ = results_of(verdict(f2p_total=2, f2p_count=0, quarantined=("b",)), ROW)
    assert f2p.passed == ()


@pytest.mark.parametrize(
    "row",
    [None, ROW.model_copy(update={"fail_to_pass": ("a", "b")}), ROW.model_copy(update={"fail_to_pass": tuple("abx")})],
)
def test_a_row_that_has_changed_names_none(row: TaskInstance | None) -> None:
    f2p, _ = results_of(verdict(), row)
    assert f2p.passed == () and f2p.failed == ("a", "c")


def test_a_verdict_without_tests_has_no_list() -> None:
    assert results_of(verdict(f2p_total=0, p2p_total=0, f2p_failed=()), ROW) == []
