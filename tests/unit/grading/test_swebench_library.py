"""The pinned library through its real worker: its verdict on crafted logs."""

import pytest

from sandbox_server.errors import GraderBroken
from sandbox_server.grading.graders.swebench import judge
from sandbox_server.grading.library import SwebenchLibrary, UnjudgeableLog
from sandbox_server.verdicts import VerdictName
from tests.unit.grading.swebench_logs import END, START, instance, summary, whole

_R, _U, _N = VerdictName.RESOLVED, VerdictName.UNRESOLVED, VerdictName.NO_RESULTS

_GOLDEN = {
    "every test passes": (whole(summary()), _R, 2, 2),
    "an F2P test fails": (whole(summary(f2="FAILED"), 1), _U, 1, 2),
    "a P2P test errors": (whole(summary(p1="ERROR"), 1), _U, 2, 1),
    "an F2P test is missing": (whole(summary(f2="")), _U, 1, 2),
    "a P2P test is missing": (whole(summary(p2="")), _U, 2, 1),
    "xfail counts as passed": (whole(summary(f1="XFAIL", p1="XFAIL")), _R, 2, 2),
    "a skipped F2P test fails": (whole(summary(f1="SKIPPED")), _U, 1, 2),
    "every F2P test skipped": (whole(summary(f1="SKIPPED", f2="SKIPPED")), _U, 0, 2),
    "a skipped P2P test is kept": (whole(summary(p1="SKIPPED")), _R, 2, 2),
    "failures that are not listed": (whole(summary() + "FAILED t.py::other - x\n", 1), _R, 2, 2),
    "no end marker": (START + summary(), _N, 0, 0),
    "no start marker": (summary() + END, _N, 0, 0),
    "patch apply failed": (whole(summary() + ">>>>> Patch Apply Failed\n"), _N, 0, 0),
    "reset failed": (whole(summary() + ">>>>> Reset Failed\n"), _N, 0, 0),
    "tests errored": (">>>>> Tests Errored\n" + whole(summary()), _N, 0, 0),
    "tests timed out": (whole(summary()) + ">>>>> Tests Timed Out\n", _N, 0, 0),
    "markers and nothing parsed": (whole("collected 0 items\n", 5), _N, 0, 0),
    "all passed but exit code 1": (whole(summary(), 1), _N, 0, 0),
    "all passed, no exit code recorded": (whole(summary(), None), _R, 2, 2),
    "results outside the markers": (summary() + whole(""), _R, 2, 2),
    "a second pair of markers": (whole(summary()) + whole(summary(f1="FAILED")), _R, 2, 2),
    "carriage returns": (whole(summary()).replace("\n", "\r\n"), _R, 2, 2),
    "the library's timeout text without results": ("Timeout error: 5 seconds exceeded.", _N, 0, 0),
    "empty": ("", _N, 0, 0),
    "a word that is no status": (whole(summary(f1="FAILEDx") + "FAILED t.py::other - x\n", 1), _U, 1, 2),
    "no test with a known status": (whole(summary(*["ERRORx"] * 4) + "FAILED t.py::other - x\n", 1), _U, 0, 0),
    "NUL and replaced bytes": (whole("\0\ufffd\x1b[31m\n" + summary()), _R, 2, 2),
}


@pytest.mark.parametrize("case", _GOLDEN)
async def test_verdicts_of_5_0_2(library: SwebenchLibrary, case: str) -> None:
    """4.1.0 judges some of these differently: a change of the library's version must not go unnoticed."""
    test_log, name, f2p_count, p2p_count = _GOLDEN[case]
    assert library.version == "5.0.2"
    report = await library.report(instance(), test_log)
    assert (judge(instance(), report)[0], report.f2p_count, report.p2p_count) == (name, f2p_count, p2p_count)


async def test_fail_only_counts_the_absent_as_passed(library: SwebenchLibrary) -> None:
    """JavaScript suites print failures only."""
    row = instance(eval_type="fail_only")
    report = await library.report(row, whole("PASSED t.py::f1\nFAILED t.py::p2\n", 1))
    assert (report.resolved, report.f2p_count, report.p2p_count) == (False, 2, 1)


async def test_an_id_cut_within_its_parameter_matches_by_its_prefix(library: SwebenchLibrary) -> None:
    """676 ids of SWE-bench Verified are truncated in this way."""
    row = instance(("t.py::f[log(photon",), ())
    assert (await library.report(row, whole("PASSED t.py::f[log(photon ph)]\n"))).resolved


async def test_causes_say_what_is_missing(library: SwebenchLibrary) -> None:
    """The cause is the only explanation that a user gets for a missing reward."""
    causes = {
        "": "never reached the tests",
        START: "never ended",
        whole(summary(), 1): "exit code 1",
        whole("collected 0 items\n", 0): "no_tests_collected",
    }
    for test_log, want in causes.items():
        assert want in judge(instance(), await library.report(instance(), test_log))[1]


async def test_the_script_records_the_exit_code(library: SwebenchLibrary) -> None:
    """Without it a conftest that prints PASSED and calls os._exit is believed."""
    script = await library.script(instance())
    lines = script.splitlines()
    assert lines[:2] == ["#!/bin/bash", "set -uxo pipefail"]
    assert lines[lines.index("pytest -rA tests") + 1] == "SWEBENCH_TEST_EXIT_CODE=$?"


async def test_a_row_the_library_cannot_judge_is_our_fault(library: SwebenchLibrary) -> None:
    """An unknown parser must not read as `no results`."""
    with pytest.raises(GraderBroken, match="parse_log_nothing"):
        await library.script(instance(parser="parse_log_nothing"))
    assert (await library.report(instance(), whole(summary()))).resolved, "the worker is of no use after an error"


async def test_long_logs_and_replies_pass(library: SwebenchLibrary) -> None:
    """A line protocol with asyncio's default limit breaks at 64 KiB."""
    names = tuple(f"t.py::test_with_a_long_name_{number}" for number in range(20_000))
    report = await library.report(instance(names, ()), whole("x" * (4 << 20) + "\n" + f"PASSED {names[0]}\n"))
    assert (report.f2p_count, len(report.f2p_failed)) == (1, 19_999)


async def test_a_log_that_the_library_fails_on_counts_against_the_patch(library: SwebenchLibrary) -> None:
    """Python refuses to parse such a long number; counted as a fault of the service, it gave masks at will."""
    test_log = whole(summary(), None) + ">>>>> Test Exit Code: " + "1" * 5000 + "\n"
    with pytest.raises(UnjudgeableLog, match="ValueError"):
        await library.report(instance(), test_log)
