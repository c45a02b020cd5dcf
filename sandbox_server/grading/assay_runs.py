"""Runs gold and the unpatched tree many times, and mutants and stubs of gold once each (see docs/grading.md)."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.grading.altering import gather_or_cancel
from sandbox_server.grading.assay import COMMAND, Assay, MutationResult, Trial, names_of, trial_of
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.mutants import mutants
from sandbox_server.grading.stubbing import Fix, limited, read_fix, stub_passes
from sandbox_server.verdicts import VerdictName


class Runs(Protocol):
    """Runs the tests."""

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes]) -> TestRun:
        """Run the tests over `patch` with the files in `altered` replaced. Raises ServiceError."""
        ...

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The text files among `paths`, as they are once `patch` is applied. Raises ServiceError."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    times: int = 3
    """Runs of gold, and of the unpatched tree, for each condition: host idle, host under load."""
    mutants: int = 8
    at_once: int = 1
    """Test runs at a time, over all instances."""


class AssayRuns:
    """Fills assays; what an assay already holds is not run again."""

    def __init__(self, runs: Runs, plan: Plan, ran: Callable[[], None] = lambda: None) -> None:
        """`ran` is called after each run."""
        self._runs = runs
        self._plan = plan
        self._room = asyncio.Semaphore(plan.at_once)
        self._ran = ran

    def missing(self, assay: Assay, *, load: bool) -> int:
        """Runs of gold and of the unpatched tree still to do."""
        return sum(max(0, self._plan.times - assay.runs(gold=gold, load=load)) for gold in (True, False))

    async def repeat(self, instance: TaskInstance, assay: Assay, *, load: bool) -> Assay:
        """Run gold and the unpatched tree alternately, up to the planned number."""
        wanted = [
            self._trial(instance, gold=gold, load=load)
            for number in range(self._plan.times)
            for gold in (True, False)
            if number >= assay.runs(gold=gold, load=load)
        ]
        return replace(assay, trials=(*assay.trials, *await gather_or_cancel(*wanted)))

    async def fault(self, instance: TaskInstance, assay: Assay) -> Assay:
        """Try stubs and mutants of gold; `MutationResult.why` says why if gold changes no Python that can be parsed."""
        try:
            async with self._room:
                fix = await read_fix(self._runs, instance)
        except (UnreadablePatch, ServiceError) as error:
            return replace(assay, faults=MutationResult(why=str(error)))
        if fix is None:
            return replace(assay, faults=MutationResult(why="gold changes no Python outside of the tests"))
        instance = limited(instance, max((trial.seconds for trial in assay.trials), default=0.0))
        faults = await self._mutants(instance, fix)

        async def run(patch: bytes, altered: Mapping[str, bytes]) -> TestRun:
            done = await self._run(instance, patch, altered)
            # a grader that judges by an exit code has one test
            return replace(done, passed=done.passed | {COMMAND}) if done.name is VerdictName.RESOLVED else done

        return replace(assay, stubs=await stub_passes(run, fix, names_of(instance)[0]), faults=faults)

    async def _mutants(self, instance: TaskInstance, fix: Fix) -> MutationResult:
        gold = instance.gold_patch.encode()
        each = max(1, -(-self._plan.mutants // len(fix.gold)))
        made = [
            (path, mutant)
            for path, text in sorted(fix.gold.items())
            for mutant in mutants(text, fix.lines[path].new, most=each, seed=f"{instance.instance_id}:{path}")
        ][: self._plan.mutants]
        if not made:
            return MutationResult(why="none can be made on the lines that gold changes")
        runs = await gather_or_cancel(*(self._run(instance, gold, {path: mutant.text}) for path, mutant in made))
        survived = tuple(
            f"{path}:{mutant.line} {mutant.what}"
            for (path, mutant), run in zip(made, runs, strict=True)
            if run.name is VerdictName.RESOLVED
        )
        return MutationResult(made=sum(run.name is not VerdictName.INFRA for run in runs), survived=survived)

    async def _trial(self, instance: TaskInstance, *, gold: bool, load: bool) -> Trial:
        began = time.monotonic()
        run = await self._run(instance, instance.gold_patch.encode() if gold else b"", {})
        seconds = run.timings_s.get("tests", time.monotonic() - began)
        return trial_of(instance, run, gold=gold, load=load, seconds=seconds)

    async def _run(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes]) -> TestRun:
        async with self._room:
            try:
                return await self._runs.run_altered(instance, patch, altered)
            except ServiceError as error:
                return TestRun(VerdictName.INFRA, f"{error.code}: {error.detail}", 0, 0)
            finally:
                self._ran()
