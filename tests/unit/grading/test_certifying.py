"""Certifying with simulated runs: which false tests an instance gets, and what a certificate waits for."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.altering import Texts, focus_on
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.base import TestRun as Run
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.rewards.f2p_if_p2p_kept import f2p_if_p2p_kept as partial
from sandbox_server.grading.slots import SlotQueue, Ticket
from sandbox_server.grading.variants.base import Unit
from sandbox_server.verdicts import VerdictName

from .simulated import PATH, RESOLVED, Kept, Runs, task, text, true_ones

_GOLD = """diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def f(number):
-    return number
+    return number + 10
"""


async def test_variants_that_spoil_other_tests_are_left_out() -> None:
    """They are found by bisection."""

    class Spoilt(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            if PATH in altered and "3" not in true_ones(altered[PATH].decode()):
                return replace(run, passed=run.passed - {"kept"})
            return run

    runs, kept = Spoilt(6), Kept()
    made = await Certifying(runs, kept).variants(task(6), "k")
    assert {unit.name for unit in made.units} == {f"test_{number}" for number in range(6) if number != 3}
    assert all(variant.kind == "value" for unit in made.units for variant in unit.variants)
    assert runs.done == made.runs
    assert await Certifying(runs, kept).variants(task(6), "k") == made
    assert runs.done == made.runs  # kept, not made again


async def test_a_test_that_an_alteration_keeps_from_running_is_not_altered() -> None:
    """Its name shows the value (`it.each`, subtests), or its file does not build: it was false for any code."""

    class Vanishing(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            seen = set(map(str, range(self.count))) if patch else {"1"}
            if PATH in altered:
                seen -= {"0"} - true_ones(altered[PATH].decode())
            return replace(run, log="\n".join(f"{PATH}::test_{number}" for number in seen))

    made = await Certifying(Vanishing(3), Kept()).variants(task(3), "k")
    assert {unit.name for unit in made.units} == {"test_1", "test_2"}


@pytest.mark.parametrize("imported", [True, False])
async def test_an_opposite_that_the_unpatched_tree_meets_counts_beside_a_refusal(imported: bool) -> None:
    """Of `assert f(1)` there was no false test at all, and code that forged its results was paid."""
    tests = ("import pytest\n\n\n" if imported else "") + "def test_0():\n    assert f(1)\n"

    class Stating(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            return replace(await super().read(instance, paths), tests={PATH: tests.encode()})

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            now = altered.get(PATH, tests.encode()).decode()
            passes = "assert f(1)" in now if patch else "assert not f(1)" in now
            passed = frozenset({"kept", *(instance.fail_to_pass if passes else ())})
            return Run(VerdictName.RESOLVED if passes else VerdictName.UNRESOLVED, "", 0, 0, passed=passed)

    made = await Certifying(Stating(1), Kept()).variants(task(1), "k")
    kinds = [{variant.kind for variant in unit.variants} for unit in made.units]
    assert kinds == ([{"refusal", "swap"}] if imported else [])


@pytest.mark.parametrize(("builds", "runs"), [(True, 10), (False, 7)])
async def test_the_unpatched_tree_is_run_once_where_the_tests_do_not_build_with_it(builds: bool, runs: int) -> None:
    """Each of its runs is a build in Java or Rust, and no expectation makes such a test run, let alone pass."""

    class Built(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            return replace(run, log="\n".join(instance.fail_to_pass) if patch or builds else "does not build")

    made = await Certifying(Built(2), Kept()).variants(task(2), "k")
    assert (len(made.units), made.runs) == (2, runs)


async def test_a_test_that_the_command_does_not_run_is_not_altered() -> None:
    """By one exit code for all it seemed false, and then each right patch passed it: `tampered`."""

    class Partly(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            passes = {f"{PATH}::test_{number}" for number in ("0", "2")} <= run.passed
            name = VerdictName.RESOLVED if passes else VerdictName.UNRESOLVED
            return Run(name, "", 0, 0, log="" if passes else "1 problem", exit_code=0 if passes else 1)

    grader = {"kind": "script", "command": "sh run_tests.sh"}
    for seed in range(8):  # a rehearsal tries one of them at random
        fields = {"instance_id": f"a__a-{seed}", "grader": grader, "fail_to_pass": (), "pass_to_pass": ()}
        instance = TaskInstance.model_validate(task(3).model_dump() | fields | {"files": {PATH: text(3)}})
        made = await Certifying(Partly(3), Kept()).variants(instance, "k")
        assert {unit.name for unit in made.units} == {"test_0", "test_2"}


@pytest.mark.parametrize("usable", [True, False])
async def test_what_the_repository_has_is_altered_only_if_nothing_else_can_be(usable: bool) -> None:
    """A test that a test patch adds a line to was altered in its old lines too, which code can compare."""
    base = "def test_0():\n    assert f(1) == 11\n"
    whole = f"{base}    assert f(2) == 12\n"

    class Grown(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            texts = await super().read(instance, paths)
            return replace(texts, tests={PATH: whole.encode()}, base={**texts.base, PATH: base.encode()})

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            now = altered.get(PATH, whole.encode()).decode()
            false = now != whole and (usable or not now.startswith(base))
            passed = frozenset({"kept"} if false or not patch else {"kept", *instance.fail_to_pass})
            return Run(VerdictName.RESOLVED if len(passed) == 2 else VerdictName.UNRESOLVED, "", 0, 0, passed=passed)

    (unit,) = (await Certifying(Grown(1), Kept()).variants(task(1), "k")).units
    assert unit.variants and {variant.public for variant in unit.variants} == {not usable}
    assert unit.public is not usable


async def test_a_single_test_in_another_language_needs_no_rehearsal() -> None:
    """Gold has been run under its true and its false values, and no pytest options have to be tried."""

    class Go(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            return Texts({"a_test.go": b'func TestAdd(t *testing.T) { if f("a") != 11 { t.Fatal() } }'}, {})

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            self.done += 1
            assert not how.get("focus")
            good = patch == b"gold" and b"!= 11 " in altered.get("a_test.go", b"!= 11 ")
            name = VerdictName.RESOLVED if good else VerdictName.UNRESOLVED
            return Run(name, "", 0, 0, passed=frozenset({"TestAdd"} if good else ()), log="TestAdd")

    made = await Certifying(Go(1), Kept()).variants(task(1).model_copy(update={"fail_to_pass": ("TestAdd",)}), "k")
    (unit,) = made.units
    assert (made.runs, made.focus) == (2 + 2 * len(unit.variants), "")


@pytest.mark.parametrize("fails", [VerdictName.UNRESOLVED, VerdictName.NO_RESULTS])
async def test_comments_that_decide_something_stay(fails: VerdictName) -> None:
    """A test reads its own source, or what was taken for a message was none."""

    class Read(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            texts = await super().read(instance, paths)
            return replace(texts, tests={PATH: texts.tests[PATH] + b"# read\n"})

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            if patch == b"gold" and b"# read" not in altered.get(PATH, b""):
                return Run(fails, "", 0, 0)
            return await super().run_altered(instance, patch, altered, **how)

    made = await Certifying(Read(3), Kept()).variants(task(3), "k")
    assert len(made.units) == 3
    assert made.files[PATH].endswith("# read\n")


@pytest.mark.parametrize(
    ("gold", "empty", "why"),
    [
        (VerdictName.UNRESOLVED, VerdictName.UNRESOLVED, "gold does not resolve it"),
        (VerdictName.RESOLVED, VerdictName.RESOLVED, "the unpatched tree resolves it"),
    ],
)
async def test_rows_that_are_not_sound_have_no_variants(gold: VerdictName, empty: VerdictName, why: str) -> None:
    runs = Runs(2)
    runs.result = {b"gold": gold, b"": empty}
    made = await Certifying(runs, Kept()).variants(task(2), "k")
    assert (made.units, made.why.startswith(why)) == ((), True)


async def test_gradings_that_wait_for_a_slot_go_before_the_runs_of_a_certificate() -> None:
    """64 rewards waited for 16 certificates of a dozen runs each, half of them without need: the patches were wrong."""
    slots, runs = SlotQueue(1), Runs(2)
    tested, waits = (Ticket(GradeRequest(task(2), b"x", sid), 0.0, {sid}) for sid in ("tested", "waits"))
    await slots.enter(tested)
    waiting = asyncio.create_task(slots.enter(waits))
    await asyncio.sleep(0)
    certifying = Certifying(runs, Kept(), yield_s=600)
    certifying.go_behind(slots.wait_until_uncrowded)
    making = asyncio.create_task(certifying.variants(task(2), "k"))
    await asyncio.wait({making}, timeout=0.05)
    assert runs.done == 0
    slots.leave(tested)
    await waiting
    assert (await making).units and runs.done
    slots.leave(waits)


async def test_a_certificate_waits_for_gradings_no_longer_than_it_may() -> None:
    """Gradings that keep coming must not starve the reward that waits for it."""
    certifying = Certifying(Runs(2), Kept(), yield_s=0.01)
    certifying.go_behind(SlotQueue(1).wait_until_uncrowded)
    assert (await certifying.variants(task(2), "free")).units

    async def never() -> None:
        await asyncio.Event().wait()

    certifying.go_behind(never)
    assert (await certifying.variants(task(2), "k")).units


async def test_gold_without_results_is_a_fault() -> None:
    """It must not count as an instance without variants, whose rewards are all paid unconfirmed."""
    runs, kept = Runs(2), Kept()
    runs.result = {b"gold": VerdictName.NO_RESULTS}
    with pytest.raises(GraderBroken):
        await Certifying(runs, kept).variants(task(2), "k")
    assert kept.documents == {}


async def test_an_instance_that_is_slow_to_certify_has_false_tests_all_the_same() -> None:
    """The time was over after gold's first run, so nothing was altered, and code that fakes its results was paid."""
    made = await Certifying(Runs(3), Kept(), budget_s=0.0).variants(task(3), "k")
    assert len(made.units) == 3 and not made.why


@pytest.mark.parametrize("alone", [True, False])
async def test_only_what_is_altered_is_run_where_gold_is_right_so(alone: bool) -> None:
    """A test that needs another one before it would fail alone."""

    class Focused(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            assert not instance.sandbox.env, "another image would be sealed"
            wrong = how.get("focus") and not alone
            return replace(run, passed=frozenset()) if wrong else run

    made = await Certifying(Focused(2), Kept()).variants(task(2), "k")
    assert len(made.units) == 2
    assert made.focus == ("-k 'test_0 or test_1'" if alone else "")


def test_tests_that_cannot_be_named_are_not_chosen() -> None:
    assert (
        focus_on([Unit("a.py", "A.test_b[c-d e]", (), ()), Unit("a.py", "test_c", (), ())]) == "-k 'test_b or test_c'"
    )
    assert focus_on([Unit("command.py", "", (), ())]) == ""
    assert focus_on([Unit("a.py", f"test_{number}", (), ()) for number in range(99)]) == ""


async def test_a_stub_earns_nothing_where_nobody_certified_the_instance() -> None:
    """What stubs pass is found out when a patch first earns a part: a function that only raises is no fix."""

    class Stubbed(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            if b"raise ValueError" in altered.get("calc.py", b""):
                return Run(VerdictName.UNRESOLVED, "", 0, 0, passed=frozenset({f"{PATH}::test_1", "kept"}))
            return await super().run_altered(instance, b"gold" if patch == _GOLD.encode() else patch, altered)

    instance = task(3).model_copy(update={"gold_patch": _GOLD})
    runs = Stubbed(3)
    confirming = Confirming(runs, Certifying(runs, Kept()), mode="resolved", earns=lambda i, v: partial(i, v) > 0)
    passes_1 = replace(RESOLVED, name=VerdictName.UNRESOLVED, f2p_count=1, f2p_total=3, p2p_total=1)
    passes_1 = replace(passes_1, f2p_failed=(f"{PATH}::test_0", f"{PATH}::test_2"))
    assert partial(instance, passes_1) > 0
    found = await confirming.confirm(instance, b"patch", passes_1)
    assert (runs.read_at_once, runs.read_apart) == ([PATH, "calc.py"], 0), "each container costs a second"
    assert (found.f2p_stubs, found.confirm, partial(instance, found)) == ((f"{PATH}::test_1",), None, 0.0)

    passes_2 = replace(passes_1, f2p_failed=(f"{PATH}::test_0", f"{PATH}::test_1"))
    found = await confirming.confirm(instance, b"patch", passes_2)
    assert found.confirm is not None and (found.confirm.state, partial(instance, found)) == ("confirmed", 1 / 3)
