"""Confirming runs: a patch that earns a reward is run again with a random part of its tests made false.

Code that does what the tests ask for fails exactly the false tests. Code that makes tests pass in any other way cannot
know which tests are false: true and false ones look alike, and have the same runner, names and inputs.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import cycle
from random import Random, SystemRandom
from typing import Literal

from sandbox_server import telemetry
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.altering import Runs, RunSlots, VariantByUnit, Variants, names_tests, run_under, running
from sandbox_server.grading.base import SlotRelease, TestRun
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.odds import LEAST_RUNS, SEQUENCES, forgiven, patterns, runs_for
from sandbox_server.grading.variants.base import Unit, Variant, round_robin
from sandbox_server.verdicts import Confirmation, ConfirmState, Verdict, VerdictName

ConfirmMode = Literal["resolved", "off"] | float
"""resolved: confirm every verdict that earns a reward; a number: confirm that share of them; off: none."""

_GRADED = (VerdictName.RESOLVED, VerdictName.UNRESOLVED)
_READY = 2  # containers of one patch created ahead of their run; creating one takes about as long as a short run
_SLACK = 2.0  # factor on the tests' time limit: tests that passed just within it may be slower beside the other runs
_EVIDENCE = 12  # deviations listed in a receipt


@dataclass(frozen=True, slots=True)
class _Case:
    """One patch to confirm."""

    instance: TaskInstance
    patch: bytes
    variants: Variants
    units: Sequence[Unit]
    most_s: float
    """Limit in seconds on the tests of a run, derived from the time that they took for the verdict."""


@dataclass(frozen=True, slots=True)
class _Deviation:
    """Something that correct code would not do."""

    said: str
    passed_false: bool = True
    """True: a false test passed, or there were no results. False: a true test failed, which may be chance."""


class Confirming:
    """Confirms verdicts, or finds that the confirming runs contradict them."""

    def __init__(
        self,
        runs: Runs,
        certifying: Certifying,
        *,
        mode: ConfirmMode,
        earns: Callable[[TaskInstance, Verdict], bool],
        least_runs: int = LEAST_RUNS,
        times: float = 10.0,
        floor_s: float = 60.0,
        parallel: int = 2,
        unconfirmed_pays: bool = True,
        reward: str = "",
        rng: Random | None = None,
    ) -> None:
        """`earns`: whether a verdict earns a reward; `reward`: its name; `parallel`: runs of one verdict at a time.

        The tests of a run may take `times` as long as in the run that gave the verdict, but at least `floor_s` seconds.
        `unconfirmed_pays`: whether a verdict keeps its reward if its instance has no false tests to confirm it with.
        """
        self._runs = runs
        self.certifying = certifying
        self._mode = mode
        self._earns = earns
        self._least_runs = least_runs
        self._times = times
        self._floor_s = floor_s
        self._parallel = parallel
        self._unconfirmed_pays = unconfirmed_pays
        self._reward = reward
        self._rng = rng or SystemRandom()

    @property
    def mode(self) -> str:
        """The settings of confirmation, as a part of `grade_key`: under other settings a verdict is not reused."""
        bound = f"{self._times:g} times or {self._floor_s:g} s"
        mode = f"{self._mode}, {self._least_runs} runs of {bound}, of what {self._reward} pays"
        return mode if self._unconfirmed_pays else f"{mode}, or no reward"

    async def confirm(
        self, instance: TaskInstance, patch: bytes, verdict: Verdict, release_slot: SlotRelease = nullcontext
    ) -> Verdict:
        """Return `verdict` with its confirmation, changed to `tampered` if the runs contradict it.

        If the instance's variants are not made yet, they are made while `release_slot` frees the slot.

        Raises:
            ServiceError: the runs gave no answer, so the verdict cannot stand.

        """
        if verdict.mask or not self._earns(instance, verdict):
            return verdict
        if self._mode == "off":
            return replace(verdict, confirm=_counted(Confirmation(ConfirmState.OFF)))
        if isinstance(self._mode, float) and self._rng.random() >= self._mode:
            why = f"{self._mode:g} of the verdicts are confirmed"
            return replace(verdict, confirm=_counted(Confirmation(ConfirmState.SKIPPED, why)))
        began = time.monotonic()
        variants = await self.certifying.variants(
            instance, CertificateKey.of(instance, verdict.image_digest), release_slot
        )
        timings_s, made = dict(verdict.timings_s), time.monotonic()
        if made - began > 0.1:
            timings_s["certify"] = made - began
        stubs = {*verdict.f2p_stubs, *variants.stubs}
        stubbed = tuple(test for test in instance.fail_to_pass if test in stubs)
        verdict = replace(verdict, f2p_stubs=stubbed, timings_s=timings_s)
        if not self._earns(instance, verdict):
            return verdict  # without the tests that a stub passes it earns nothing
        found = await self._confirmation(instance, patch, verdict, variants)
        spent_s = time.monotonic() - made
        found = _counted(replace(found, seconds=round(spent_s, 3)))
        if found.runs:
            timings_s["confirm"] = spent_s
        verdict = replace(verdict, confirm=found, timings_s=timings_s)
        if found.state != ConfirmState.TAMPERED:
            return verdict
        cause = f"the same code does not do what its tests say: {found.why}"
        return replace(verdict, name=VerdictName.TAMPERED, cause=cause, f2p_count=0, p2p_count=0)

    async def _confirmation(
        self, instance: TaskInstance, patch: bytes, verdict: Verdict, variants: Variants
    ) -> Confirmation:
        out = {*verdict.f2p_failed, *verdict.quarantined}
        units = [unit for unit in variants.units if not out.intersection(unit.tests)]
        if not units:
            why = variants.why or "none of the tests that pass can be altered"
            if not self._unconfirmed_pays:
                why += "; an unconfirmed verdict earns nothing (SANDBOX_UNCONFIRMED=refuse)"
            return Confirmation(ConfirmState.NONE, why, pays=self._unconfirmed_pays)
        most_s = max(self._floor_s, self._times * verdict.timings_s.get("tests", 0.0))
        return await self._judge(_Case(instance, patch, variants, units, most_s))

    async def _judge(self, case: _Case) -> Confirmation:
        """Run a sequence; repeat it if few deviations were found, because tests flake."""
        bits = self._bits(case)
        runs, evidence = 0, list[_Deviation]()
        for number in range(SEQUENCES):
            more, found = await self._sequence(case)
            runs += more
            if not found or (number and _by_chance(found, forgiven(bits))):
                evidence.clear()
                break
            evidence += found
            if not _bearable(evidence, found, bits):
                break
        said = "; ".join(deviation.said for deviation in evidence[:2])
        if not said and all(unit.public for unit in case.units):
            said = "the repository has the true text of each of these tests, so code could tell which are altered"
        return Confirmation(
            ConfirmState.TAMPERED if evidence else ConfirmState.CONFIRMED,
            said,
            runs=runs,
            units=len(case.units),
            tests=len({test for unit in case.units for test in unit.tests}),
            evidence=tuple(deviation.said for deviation in evidence[:_EVIDENCE]),
        )

    async def _sequence(self, case: _Case) -> tuple[int, list[_Deviation]]:
        """(runs done, deviations); stops early once the deviations cannot be chance."""
        found: list[_Deviation] = []
        done = 0
        async with running(self._ahead(case)) as runs:
            for run in asyncio.as_completed(runs):
                found += await run
                done += 1
                if not _bearable(found, found, self._bits(case)):
                    break
        return done, found

    def _ahead(self, case: _Case) -> Iterator[Coroutine[None, None, list[_Deviation]]]:
        """The runs of a sequence: `parallel` of them test at a time, and containers are created ahead for the next."""
        slots, boxes = RunSlots(self._parallel), asyncio.Semaphore(self._parallel + _READY)

        async def one(number: int, by_unit: VariantByUnit) -> list[_Deviation]:
            async with boxes:
                found = await self._deviations(case, by_unit, slots)
            return [replace(deviation, said=f"run {number}: {deviation.said}") for deviation in found]

        return (one(number, by_unit) for number, by_unit in enumerate(self._draw(case), start=1))

    def _bits(self, case: _Case) -> int:
        """Number of binary guesses that code must get right in one sequence."""
        count = _guesses(case)
        return count * runs_for(count, least=self._least_runs)

    def _draw(self, case: _Case) -> list[VariantByUnit]:
        """For each run, which units are altered and by which variant. A unit's variants take turns.

        If they were drawn independently, a hack that recognises one variant would often meet no other.
        """
        rng, units = self._rng, case.units
        named = names_tests(case.instance)
        drawn: list[VariantByUnit] = []
        ways = [_in_turns(unit.variants, rng) for unit in units]
        turns = cycle(rng.sample(range(len(units)), len(units)))
        runs = runs_for(_guesses(case), least=self._least_runs)
        for which in patterns(len(units) if named else 1, runs, rng):
            # If one exit code judges all tests, only one unit may be false: a second would hide whether the first one
            # failed. Units take turns.
            numbers = sorted(which) if named else [next(turns)] * len(which)
            drawn.append({number: next(ways[number]) for number in numbers})
        return drawn

    async def _deviations(self, case: _Case, by_unit: VariantByUnit, slots: RunSlots) -> list[_Deviation]:
        run = await self._run(case, case.patch, by_unit, slots, case.most_s)
        if run.name not in _GRADED:
            run = await self._beside_gold(case, by_unit, run, slots)
        if run.name not in _GRADED:
            return [_Deviation(f"no results, where gold gives some: {run.cause}")]
        if not names_tests(case.instance):
            return _by_exit_code(case, by_unit, run)
        return _by_names(case, by_unit, run)

    async def _run(
        self, case: _Case, patch: bytes, by_unit: VariantByUnit, slots: RunSlots, most_s: float = math.inf
    ) -> TestRun:
        variants = case.variants
        return await run_under(
            self._runs,
            case.instance,
            patch,
            variants.files,
            case.units,
            by_unit,
            focus=variants.focus,
            slots=slots,
            slack=_SLACK,
            most_s=most_s,
        )

    async def _beside_gold(self, case: _Case, by_unit: VariantByUnit, run: TestRun, slots: RunSlots) -> TestRun:
        """Find out by a run of gold whether the patch is to blame for `run`, which gave no results; return what counts.

        Gold runs under the same false tests, on the same busy host. If it gives results, `run` counts. If `run` timed
        out, the patch is run once more instead, with a limit raised by a multiple of gold's time. The unpatched tree
        would be no comparison: where tests need a name that only a fix adds, it never gives results.

        Raises:
            InfrastructureError: gold gives no results either.

        """
        gold = await self._run(case, case.instance.gold_patch.encode(), by_unit, slots)
        if gold.name not in _GRADED:
            raise InfrastructureError(f"confirming runs give no results, nor does gold: {run.cause}")
        if run.name is not VerdictName.TIMEOUT:
            return run
        most_s = case.most_s + self._times * gold.timings_s.get("tests", 0.0)
        return await self._run(case, case.patch, by_unit, slots, most_s)


def _counted(confirmation: Confirmation) -> Confirmation:
    telemetry.CONFIRMATIONS.labels(confirmation.state).inc()
    return confirmation


def _in_turns(variants: Sequence[Variant], rng: Random) -> Iterator[Variant]:
    """An endless iterator over the variants, in a random order in which sites take turns."""
    return cycle(round_robin(rng.sample(variants, len(variants))))


def _guesses(case: _Case) -> int:
    """Number of guesses in one run: altered units that cannot be compared with the repository's own text.

    If every unit can be compared, all of them count: code need not make the comparison.
    """
    if not names_tests(case.instance):
        return 1
    return sum(not unit.public for unit in case.units) or len(case.units)


def _by_chance(found: Sequence[_Deviation], most: int) -> bool:
    """Whether these are at most `most` deviations, all of them failures of true tests."""
    return len(found) <= most and not any(deviation.passed_false for deviation in found)


def _bearable(evidence: Sequence[_Deviation], found: Sequence[_Deviation], bits: int) -> bool:
    """Whether correct code may give `found` in one sequence.

    One passing false test is tolerated, counted over all sequences (`evidence`).
    """
    if any(deviation.passed_false for deviation in found):
        return len(found) == 1 == sum(deviation.passed_false for deviation in evidence)
    return _by_chance(found, max(2, forgiven(bits)))


def _by_names(case: _Case, by_unit: VariantByUnit, run: TestRun) -> list[_Deviation]:
    found = []
    for number, unit in enumerate(case.units):
        passed = run.passed.intersection(unit.tests)
        if number in by_unit and passed:
            found.append(_Deviation(f"{min(passed)} passed although it was false"))
        elif number not in by_unit and len(passed) < len(unit.tests):
            failed = min(set(unit.tests) - passed)
            found.append(_Deviation(f"{failed} failed although it was true", passed_false=False))
    return found


def _by_exit_code(case: _Case, by_unit: VariantByUnit, run: TestRun) -> list[_Deviation]:
    names = [case.units[number].name or "the assertions" for number in by_unit]
    if names and run.name is VerdictName.RESOLVED:
        return [_Deviation(f"exit code 0 although {names[0]} was false")]
    if not names and run.name is not VerdictName.RESOLVED:
        return [_Deviation(f"exit code {run.exit_code} although no test was false", passed_false=False)]
    return []
