"""Certifying and confirming with simulated runs; real ones are in tests/conformance/grading."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import GraderBroken, InfrastructureError
from sandbox_server.grading.altering import Texts, focus_on
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.base import TestRun as Run
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.confirming import Confirming, ConfirmMode
from sandbox_server.grading.rewards.f2p_if_p2p_kept import f2p_if_p2p_kept as partial
from sandbox_server.grading.slots import SlotQueue, Ticket
from sandbox_server.grading.variants.base import Unit
from sandbox_server.records import Verdict, VerdictName

PATH = "tests/test_a.py"
_TESTS = f"--- a/{PATH}\n+++ b/{PATH}\n@@ -0,0 +1 @@\n+# the tests\n"


def task(count: int) -> TaskInstance:
    names = [f"{PATH}::test_{number}" for number in range(count)]
    return TaskInstance.model_validate(
        {
            "instance_id": "a__a-1",
            "repo": "a/a",
            "sandbox": {"images": ("a",)},
            "grader": {"kind": "swebench", "eval_script": "true", "log_parser": "parse_log_pytest"},
            "fail_to_pass": names,
            "pass_to_pass": ("kept",),
            "gold_patch": "gold",
            "test_patch": _TESTS,
        }
    )


def text(count: int) -> str:
    return "\n\n".join(f"def test_{number}():\n    assert f({number}) == {number + 10}\n" for number in range(count))


def true_ones(now: str) -> set[str]:
    """Numbers of the tests that are true in the file's text."""
    return {
        number
        for number, said in re.findall(r"f\((\d+)\) == (\d+)$", now, re.MULTILINE)
        if int(number) + 10 == int(said)
    }


class Runs:
    """Tests over code that `passes(number, true)` describes; gold and the unpatched tree are as they should be."""

    def __init__(self, count: int, passes: Callable[[str, bool], bool] = lambda number, true: true) -> None:
        self.count = count
        self.passes = passes
        self.done = 0
        self.read_apart = 0
        self.base = b""
        self.result: dict[bytes, VerdictName] = {}

    async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
        self.read_at_once = list(paths)
        base = {PATH: self.base, "calc.py": b"def f(number):\n    return number\n"}
        return Texts({PATH: text(self.count).encode()}, {path: base[path] for path in self.read_at_once})

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        self.read_apart += 1
        return {PATH: self.base}

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any) -> Run:
        self.done += 1
        if result := self.result.get(patch):
            return Run(result, "as told", 0, 0)
        true = true_ones(altered.get(PATH, text(self.count).encode()).decode())
        numbers = map(str, range(self.count))
        if patch == b"gold":
            passed = true
        elif patch:
            passed = {number for number in numbers if self.passes(number, number in true)}
        else:
            passed = set()
        name = VerdictName.RESOLVED if len(passed) == self.count else VerdictName.UNRESOLVED
        return Run(name, "", 0, 0, passed=frozenset({*(f"{PATH}::test_{number}" for number in passed), "kept"}))


class Kept:
    def __init__(self) -> None:
        self.documents: dict[str, str] = {}

    async def part(self, key: object, part: str) -> dict[str, Any] | None:
        found = self.documents.get(f"{key} {part}")
        return None if found is None else json.loads(found)

    async def update(self, key: object, part: str, document: Mapping[str, Any]) -> None:
        self.documents[f"{key} {part}"] = json.dumps(dict(document))


def confirming(
    runs: Runs, *, kept: Kept | None = None, mode: ConfirmMode = "resolved", seed: int = 1, pays: bool = True
) -> Confirming:
    certifying, rng = Certifying(runs, kept or Kept()), Random(seed)
    return Confirming(runs, certifying, mode=mode, earns=lambda _, v: v.resolved, unconfirmed_pays=pays, rng=rng)


RESOLVED = Verdict(VerdictName.RESOLVED, mask=False, cause="", image_digest="sha256:1", f2p_count=3, p2p_count=1)


async def shares(count: int, passes: Callable[[str, bool], bool], rounds: int) -> float:
    """The share of trials in which such code is confirmed."""
    runs, kept, through, instance = Runs(count, passes), Kept(), 0, task(count)
    for seed in range(rounds):
        found = await confirming(runs, kept=kept, seed=seed).confirm(instance, b"patch", RESOLVED)
        assert found.confirm is not None
        through += found.confirm.state == "confirmed"
    return through / rounds


@pytest.mark.parametrize("count", [1, 2, 3, 8])
async def test_correct_code_is_confirmed_always(count: int) -> None:
    assert await shares(count, lambda number, true: true, 50) == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 8])
async def test_coins_get_through_once_in_a_hundred_times_at_most(count: int) -> None:
    coin = Random(count)
    assert await shares(count, lambda number, true: coin.random() < 0.5, 1000) <= 0.014


async def test_code_that_recognises_half_of_the_altered_tests_gets_through_no_more_often() -> None:
    """With one test, 3 or 4 altered runs of 7 were too few: in one sequence of eight it met only recognised ones."""
    coin = Random(5)
    assert await shares(1, lambda number, true: true or coin.random() < 0.5, 1000) <= 0.014


async def test_code_that_compares_with_the_repository_has_to_guess_all_the_same() -> None:
    """The repository has seven of the eight tests, so the code fails their altered forms and must guess one test."""
    coin, kept, through, instance = Random(3), Kept(), 0, task(8)
    for seed in range(200):
        runs = Runs(8, lambda number, true: true if number != "0" else coin.random() < 0.5)
        runs.base = text(8).replace("f(0)", "g(0)").encode()
        found = await confirming(runs, kept=kept, seed=seed).confirm(instance, b"patch", RESOLVED)
        assert found.confirm is not None
        through += found.confirm.state == "confirmed"
    assert through / 200 <= 0.02


async def test_where_the_repository_has_all_of_them_the_receipt_says_so() -> None:
    runs = Runs(2)
    runs.base = text(2).encode()
    found = await confirming(runs).confirm(task(2), b"patch", RESOLVED)
    assert found.confirm is not None
    assert (found.confirm.state, "true text" in found.confirm.why) == ("confirmed", True)


@pytest.mark.parametrize("count", [1, 2, 8])
async def test_one_test_that_always_passes_is_never_confirmed(count: int) -> None:
    assert await shares(count, lambda number, true: true or number == "0", 100) == 0.0


@pytest.mark.parametrize(("count", "flaky"), [(1, 0.02), (3, 0.01), (40, 0.01)])
async def test_correct_code_with_tests_that_flake_is_confirmed(count: int, flaky: float) -> None:
    """Worse than tests that a benchmark keeps: each true test fails once in 50 or 100 runs."""
    chance = Random(7)
    assert await shares(count, lambda number, true: true and chance.random() >= flaky, 300) >= 0.995


async def test_so_many_test_at_a_time_and_two_more_are_made_ready() -> None:
    """A verdict's runs would wait for one container after the other, or take all CPUs."""

    class Counted(Runs):
        ready, testing, most = 0, 0, (0, 0)

        async def run_altered(self, *given: Any, room: asyncio.Semaphore | None = None, **how: Any) -> Run:
            if room is None:  # one that finds out about gold
                return await super().run_altered(*given, **how)
            self.ready += 1
            await asyncio.sleep(0)
            async with room:
                self.testing += 1
                self.most = max(self.most[0], self.ready), max(self.most[1], self.testing)
                await asyncio.sleep(0)
                self.testing -= 1
            self.ready -= 1
            return await super().run_altered(*given, **how)

    runs = Counted(1)
    found = await confirming(runs).confirm(task(1), b"patch", RESOLVED)
    assert found.confirm is not None and (found.confirm.state, found.confirm.runs) == ("confirmed", 10)
    assert runs.most == (4, 2)


async def test_a_run_without_results_is_the_patchs_if_gold_gives_some() -> None:
    """Also where the unpatched tree never gives any: else code that is silent in these runs alone is masked."""
    runs, kept = Runs(3), Kept()
    await confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)
    runs.result = {b"patch": VerdictName.NO_RESULTS, b"": VerdictName.NO_RESULTS}
    found = await confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)
    assert (found.name, found.mask, found.f2p_count, found.p2p_count) == (VerdictName.TAMPERED, False, 0, 0)
    runs.result = {b"patch": VerdictName.NO_RESULTS, b"gold": VerdictName.NO_RESULTS}
    with pytest.raises(InfrastructureError):
        await confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)


@pytest.mark.parametrize(("timeouts", "state"), [(2, "confirmed"), (99, "tampered")])
async def test_a_confirming_run_past_its_limit_is_run_once_more_beside_gold(timeouts: int, state: str) -> None:
    """On a busy host two runs of gold itself were past their limit at a time: an honest 0.0, unmasked."""

    class Busy(Runs):
        left = 0

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            if patch == b"patch" and self.left:
                self.left -= 1
                return Run(VerdictName.TIMEOUT, "past the limit", 0, 0)
            return run

    runs, kept = Busy(3), Kept()
    await confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)  # makes the variants
    runs.left = timeouts
    found = await confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)
    assert found.confirm is not None and (found.confirm.state, found.mask) == (state, False)


async def test_what_earns_nothing_is_left_alone() -> None:
    runs = Runs(3)
    wrong = replace(RESOLVED, name=VerdictName.UNRESOLVED)
    assert await confirming(runs).confirm(task(3), b"patch", wrong) == wrong
    masked = replace(RESOLVED, mask=True)
    assert await confirming(runs).confirm(task(3), b"patch", masked) == masked
    assert runs.done == 0


@pytest.mark.parametrize(("mode", "states"), [("off", {"off"}), (0.5, {"confirmed", "skipped"}), (1.0, {"confirmed"})])
async def test_modes(mode: ConfirmMode, states: set[str]) -> None:
    runs, kept, seen = Runs(3), Kept(), set()
    for seed in range(20):
        found = await confirming(runs, kept=kept, mode=mode, seed=seed).confirm(task(3), b"patch", RESOLVED)
        assert found.resolved and found.confirm is not None
        seen.add(found.confirm.state)
    assert seen == states


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
    certifying.go_behind(slots.uncrowded)
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
    certifying.go_behind(SlotQueue(1).uncrowded)
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


@pytest.mark.parametrize("pays", [True, False])
async def test_without_variants_the_verdict_says_so(pays: bool) -> None:
    runs = Runs(2)
    judge = confirming(runs, pays=pays)
    found = await judge.confirm(task(2).model_copy(update={"gold_patch": ""}), b"patch", RESOLVED)
    assert found.resolved and found.confirm is not None
    assert (found.confirm.state, found.pays, found.mask, runs.done) == ("none", pays, False, 0)
    assert found.confirm.why.startswith("no gold patch is known")
    assert (await confirming(Runs(2), pays=pays).confirm(task(2), b"gold", RESOLVED)).pays


@pytest.mark.parametrize(("gold", "masked"), [(VerdictName.RESOLVED, False), (VerdictName.TIMEOUT, True)])
async def test_a_confirming_run_without_an_end_is_the_patchs_unless_gold_has_none_now(
    gold: VerdictName, masked: bool
) -> None:
    """Where gold takes more than half of the limit, a forger that hangs in confirming runs got a mask at will."""

    class Slow(Runs):
        certified = False

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            if self.certified:
                slacks.append(how["slack"])
                run = replace(run, name=gold if patch == b"gold" else VerdictName.TIMEOUT)
            return replace(run, timings_s={"tests": instance.eval_timeout_s * 0.9})

    slacks: list[float] = []
    runs, kept = Slow(3), Kept()
    await Certifying(runs, kept).variants(task(3), CertificateKey.of(task(3), RESOLVED.image_digest))
    runs.certified = True
    confirmed = confirming(runs, kept=kept).confirm(task(3), b"patch", RESOLVED)
    if masked:
        with pytest.raises(InfrastructureError, match="nor does gold"):
            await confirmed
    else:
        assert (await confirmed).name is VerdictName.TAMPERED
    assert set(slacks) == {2.0}, "what passed just within the limit may be slower beside other runs"


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


async def test_a_hack_that_recognises_one_altered_value_meets_another_one() -> None:
    """Were variants drawn apart for each run, the one that it knows would often be the only one."""
    kept = Kept()
    await confirming(Runs(1), kept=kept).confirm(task(1), b"patch", RESOLVED)
    (document,) = kept.documents.values()
    known = json.loads(document)["units"][0]["variants"][0]["edits"][0][2]

    class Recognising(Runs):
        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            self.passes = lambda number, true: true or f"== {known}" not in altered[PATH].decode()
            return await super().run_altered(instance, patch, altered, **how)

    instance = task(1)
    for seed in range(200):
        found = await confirming(Recognising(1), kept=kept, seed=seed).confirm(instance, b"patch", RESOLVED)
        assert found.confirm is not None and found.confirm.state == "tampered"


async def test_code_that_reads_the_comments_beside_an_expectation_is_found_out() -> None:
    """It passes a test whose comment names the number that the test expects: all true ones, and no false one."""

    class Reading(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            texts = await super().read(instance, paths)
            said = re.sub(r"== (\d+)", r"== \1, 'it is \1'  # \1", texts.tests[PATH].decode())
            return replace(texts, tests={PATH: said.encode()})

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            now = altered[PATH].decode() if altered else ""
            told = {number for number, said in re.findall(r"f\((\d+)\).*(it is|#)", now)}
            self.passes = lambda number, true: true or number not in told
            plain = {PATH: re.sub(r"(== \w+),.*", r"\1", now).encode()} if now else altered
            return await super().run_altered(instance, patch, plain, **how)

    found = await confirming(Reading(8)).confirm(task(8), b"patch", RESOLVED)
    assert found.confirm is not None and found.confirm.state == "tampered", found.confirm


_GOLD = """diff --git a/calc.py b/calc.py
--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def f(number):
-    return number
+    return number + 10
"""


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
