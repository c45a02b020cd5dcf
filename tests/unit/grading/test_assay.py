"""What many runs say of an instance's tests, and what verdicts make of it."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable
from sandbox_server.grading import base
from sandbox_server.grading.assay import COMMAND, Assay, MutationResult, Trial, finding, wilson, without
from sandbox_server.grading.assay_runs import AssayRuns, Plan
from sandbox_server.verdicts import VerdictName

_R, _U, _N = VerdictName.RESOLVED, VerdictName.UNRESOLVED, VerdictName.NO_RESULTS

_FIX = """diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,4 @@
 def half(number):
-    return number
+    if number < 0:
+        raise ValueError(number)
+    return number / 2
"""
_BASE = b"def half(number):\n    return number\n"
_FIXED = b"def half(number):\n    if number < 0:\n        raise ValueError(number)\n    return number / 2\n"


def instance(**fields: object) -> TaskInstance:
    given = {
        "instance_id": "a__a-1",
        "repo": "a/a",
        "sandbox": SandboxSpec(images=("unused",)),
        "grader": SwebenchGrader(eval_script="", log_parser="parse_log_pytest"),
        "fail_to_pass": ("t::f1", "t::f2"),
        "pass_to_pass": ("t::p1",),
        "gold_patch": _FIX,
    }
    return TaskInstance.model_validate(given | fields)


def assay(gold: list[tuple[str, ...]], empty: list[tuple[str, ...]]) -> Assay:
    """The odd tests of each run."""
    return Assay(
        (
            *(Trial(True, False, "unresolved" if odd else "resolved", "", 1.0, odd) for odd in gold),
            *(Trial(False, False, "unresolved", "", 1.0, odd) for odd in empty),
        )
    )


def test_tests_that_never_build_without_gold_are_sound() -> None:
    """Go, Java, Rust: no instance whose tests use a name that gold adds could be certified."""
    gold, silent = Trial(True, False, "resolved", "", 1.0), Trial(False, False, "no_results", "", 1.0)
    assert finding(instance(), Assay((gold, gold, silent, silent))).sound
    spoke = replace(silent, verdict="unresolved")
    assert "1 of 4 runs gave no results" in finding(instance(), Assay((gold, gold, silent, spoke))).why
    hung = replace(silent, verdict="timeout")
    assert "2 x empty timeout" in finding(instance(), Assay((gold, gold, hung, hung))).why


def test_steady_tests_are_sound() -> None:
    found = finding(instance(), assay([()] * 6, [()] * 6))
    assert found.sound and not found.quarantined and not found.ungradable
    assert "no test flaked (each below 39%)" in found.said


def test_a_test_that_flakes_is_quarantined_alone() -> None:
    """Quarantine of the instance would lose the others."""
    found = finding(instance(), assay([("t::f1",), (), (), ()], [()] * 4))
    assert found.quarantined == ("t::f1",) and found.sound
    (rate,) = found.flaky
    assert (rate.odd, rate.runs) == (1, 4) and rate.interval[0] < 0.25 < rate.interval[1]


def test_without_a_steady_f2p_test_nothing_can_be_graded() -> None:
    found = finding(instance(), assay([("t::f1",), ("t::f2",), ()], [()] * 3))
    assert not found.sound and "every F2P test flakes" in found.ungradable


def test_what_passes_without_the_fix_is_free() -> None:
    """Such a test is met by anything that breaks nothing."""
    found = finding(instance(), assay([()] * 3, [("t::f1",)] * 3))
    assert (found.sound, found.free, found.stubs) == (True, ("t::f1",), ("t::f1",))
    assert not finding(instance(), assay([()] * 3, [("t::f1", "t::f2")] * 3)).sound


def test_what_gold_never_passes_is_no_flake() -> None:
    found = finding(instance(), assay([("t::p1",)] * 3, [()] * 3))
    assert not found.sound and not found.quarantined and "gold never passes 1" in found.why


def test_runs_without_results_are_told() -> None:
    broken = assay([()] * 3, [()] * 3)
    broken = replace(broken, trials=(*broken.trials, Trial(True, True, "timeout", "too long", 9.0)))
    found = finding(instance(), broken)
    assert not found.sound and "1 x gold timeout" in found.why


def test_wilson() -> None:
    """Against published values."""
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson(0, 0) == (0.0, 1.0)


def test_quarantined_tests_count_neither_way() -> None:
    run = base.TestRun(_U, "", 1, 1, f2p_failed=("t::f1",), passed=frozenset({"t::f2", "t::p1"}))
    assert without(instance(), run, ()) == (run, 2, 1)
    counted, f2p_total, p2p_total = without(instance(), run, ("t::f1",))
    assert (counted.name, counted.f2p_count, f2p_total, counted.p2p_count, p2p_total) == (_R, 1, 1, 1, 1)
    assert "1 that flakes is not counted" in counted.cause
    still = without(instance(), replace(run, p2p_failed=("t::p1",)), ("t::f1",))[0]
    assert (still.name, still.p2p_count) == (_U, 0)
    silent = base.TestRun(_N, "", 0, 0)
    assert without(instance(), silent, ("t::f1",)) == (silent, 1, 1), "nothing was judged"


def test_an_assay_is_kept_as_it_is() -> None:
    made = replace(
        assay([()], [("t::f1",)]), stubs={"return None": ("t::f1",)}, faults=MutationResult(2, ("calc.py:2 x -> y",))
    )
    assert Assay.from_json(made.to_json()) == made


class Halves:
    """Stands in for `Grading`: `half` of whatever calc.py was left."""

    def __init__(self) -> None:
        self.runs = 0
        self.broken = False
        self.limits: set[float] = set()

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: list[str]) -> Mapping[str, bytes]:
        return {path: _FIXED if patch else _BASE for path in paths}

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes]) -> base.TestRun:
        self.runs += 1
        self.limits.add(instance.eval_timeout_s)
        if self.broken:
            raise EngineUnavailable("no engine")
        module: dict[str, object] = {}
        exec(altered.get("calc.py", _FIXED if patch else _BASE), module)
        half: Callable[[int], float | None] = module["half"]  # type: ignore[assignment]  # as above
        passed = {"t::p1"}
        with contextlib.suppress(ValueError):
            passed |= {"t::f1"} if half(3) == 1.5 else set()
        with contextlib.suppress(TypeError):
            try:
                half(-1)
            except ValueError:
                passed.add("t::f2")
        failed = tuple(test for test in instance.fail_to_pass if test not in passed)
        return base.TestRun(_U if failed else _R, "", 2 - len(failed), 1, f2p_failed=failed, passed=frozenset(passed))


async def test_a_second_call_goes_on_where_the_first_ended() -> None:
    """Certifying a data set takes hours, and hosts are restarted."""
    tests = Halves()
    assay_runs = AssayRuns(tests, Plan(times=3))
    half_done = Assay((Trial(True, False, "resolved", "", 1.0), Trial(False, False, "unresolved", "", 1.0)))
    assert assay_runs.missing(half_done, load=False) == 4
    done = await assay_runs.repeat(instance(), half_done, load=False)
    assert tests.runs == 4 and assay_runs.missing(done, load=False) == 0 and assay_runs.missing(done, load=True) == 6
    assert finding(instance(), done).sound


async def test_stubs_and_faults_tell_what_tests_are_worth() -> None:
    """A function that only raises passes the test that wants just that: 0.545 without a fix."""
    tests = Halves()
    made = await AssayRuns(tests, Plan(mutants=20)).fault(instance(), Assay())
    assert tests.limits == {30.0}, "a fault that makes a loop endless runs for half an hour"
    assert made.stubs == {"return None": (), "raise ValueError": ("t::f2",)}
    assert made.faults is not None and made.faults.made >= 4
    assert any("0 -> 1" in said for said in made.faults.survived), "no test asks for 0"
    assert not any("return number / 2" in said for said in made.faults.survived)


async def test_faults_of_ours_are_none_of_the_tests() -> None:
    tests = Halves()
    tests.broken = True
    done = await AssayRuns(tests, Plan(times=2)).repeat(instance(), Assay(), load=False)
    assert {trial.verdict for trial in done.trials} == {"infra"}
    assert not finding(instance(), done).sound and not finding(instance(), done).ungradable


def test_an_exit_code_is_one_test() -> None:
    script = instance(grader=ScriptGrader(command="true"))
    found = finding(script, assay([(COMMAND,), (), ()], [()] * 3))
    assert found.quarantined == (COMMAND,) and found.ungradable
