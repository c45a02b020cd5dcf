"""Confirming with simulated runs; real ones are in tests/conformance/grading."""

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from textwrap import indent
from typing import Any

import pytest

from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.altering import Texts
from sandbox_server.grading.base import TestRun as Run
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.confirming import ConfirmMode
from sandbox_server.verdicts import VerdictName

from .simulated import PATH, RESOLVED, Kept, Runs, confirming, shares, task, text


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

        async def run_altered(self, *given: Any, slots: asyncio.Semaphore | None = None, **how: Any) -> Run:
            if slots is None:  # one that finds out about gold
                return await super().run_altered(*given, **how)
            self.ready += 1
            await asyncio.sleep(0)
            async with slots:
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
async def test_a_confirming_run_past_its_limit_is_run_once_more_after_gold(timeouts: int, state: str) -> None:
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


@pytest.mark.parametrize(
    ("first_s", "gold_s", "most_s"),
    [(2.0, 1.0, {60.0, 70.0}), (2.0, 20.0, {60.0, 260.0}), (30.0, 1.0, {300.0, 310.0})],
)
async def test_code_that_idles_when_confirmed_is_stopped_soon(
    first_s: float, gold_s: float, most_s: set[float]
) -> None:
    """It held its slot for four times the row's limit, 638 s at 120, although its first run had taken two seconds.

    Gold is not bounded so: what it needs now tells whether the host is slow, and then the code may be slow too.
    """

    class Idle(Runs):
        certified = False

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            run = await super().run_altered(instance, patch, altered, **how)
            if self.certified and patch == b"patch":
                given.add(how["most_s"])
                return replace(run, name=VerdictName.TIMEOUT)
            if self.certified:
                assert (how["slack"], how["most_s"]) == (2.0, math.inf)
            return replace(run, timings_s={"tests": gold_s})

    given: set[float] = set()
    runs, kept = Idle(3), Kept()
    await Certifying(runs, kept).variants(task(3), CertificateKey.of(task(3), RESOLVED.image_digest))
    runs.certified = True
    first = replace(RESOLVED, timings_s={"tests": first_s})
    found = await confirming(runs, kept=kept).confirm(task(3), b"patch", first)
    assert (found.name, found.mask, given) == (VerdictName.TAMPERED, False, most_s)


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


_BASE = "tests/base.py"


async def test_tests_that_are_inherited_from_the_repository_are_altered() -> None:
    """Code that forged them alone was confirmed, and so was a patch that emptied them."""

    class Inheriting(Runs):
        async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
            inheriting = b"from tests.base import Base\n\nclass TestA(Base):\n    pass\n"
            return replace(await super().read(instance, paths), tests={PATH: inheriting})

        async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
            assert _BASE in paths
            return {_BASE: f"class Base:\n{indent(text(self.count), '    ')}\n".encode()}

        async def run_altered(
            self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any
        ) -> Run:
            inner = {PATH: altered[_BASE]} if _BASE in altered else {}
            run = await super().run_altered(instance, patch, inner, **how)
            return replace(run, passed=frozenset(name.replace("::", "::TestA::") for name in run.passed))

    names = tuple(name.replace("::", "::TestA::") for name in task(2).fail_to_pass)
    instance = task(2).model_copy(update={"fail_to_pass": names})
    for passes, state in ((lambda number, true: true, "confirmed"), (lambda number, true: True, "tampered")):
        found = await confirming(Inheriting(2, passes)).confirm(instance, b"patch", RESOLVED)
        assert found.confirm is not None and (found.confirm.state, found.confirm.units) == (state, 2)
