"""Runs an instance's own patches many times, and faults and stubs of gold once each; docs/grading.md says what for."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from sandbox_server.catalogue.changes import UnreadablePatch, read_changes
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import ServiceError
from sandbox_server.grading.assay import COMMAND, Assay, Faults, Trial, names_of, trial_of
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.mutants import mutants, stubs
from sandbox_server.records import VerdictName

_LEAST_S, _SLOWER = 30.0, 5
"""A fault's run is stopped after so many seconds, or so many times the slowest run of the instance's own patches."""


class Runs(Protocol):
    """How the tests are run."""

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes]) -> TestRun:
        """What the tests give over `patch` with these files replaced. Raises ServiceError."""
        ...

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: list[str]) -> Mapping[str, bytes]:
        """Those of `paths` that are text files once `patch` is applied. Raises ServiceError."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is tried."""

    times: int = 3
    """Runs of gold, and of the unpatched tree, each way: quiet and under load."""
    mutants: int = 8
    at_once: int = 1
    """Runs of all instances together at a time."""


class _Lines(NamedTuple):
    """Of one file that gold changes."""

    old: list[int]
    new: list[int]


class Assaying:
    """Fills assays; what one holds already is not run again."""

    def __init__(self, runs: Runs, plan: Plan, ran: Callable[[], None] = lambda: None) -> None:
        """`ran` is told of each run that ended."""
        self._runs = runs
        self._plan = plan
        self._room = asyncio.Semaphore(plan.at_once)
        self._ran = ran

    def missing(self, assay: Assay, *, load: bool) -> int:
        """How many runs of gold and the unpatched tree are left to do."""
        return sum(max(0, self._plan.times - assay.runs(gold=gold, load=load)) for gold in (True, False))

    async def repeat(self, instance: TaskInstance, assay: Assay, *, load: bool) -> Assay:
        """Gold and the unpatched tree, in turns."""
        wanted = [
            self._trial(instance, gold=gold, load=load)
            for number in range(self._plan.times)
            for gold in (True, False)
            if number >= assay.runs(gold=gold, load=load)
        ]
        return replace(assay, trials=(*assay.trials, *await asyncio.gather(*wanted)))

    async def fault(self, instance: TaskInstance, assay: Assay) -> Assay:
        """Stubs and mutants of gold; nothing where gold changes no Python that can be read."""
        gold = instance.gold_patch.encode()
        try:
            changed = _changed_lines(instance)
            async with self._room:
                files = await self._runs.files_with(instance, gold, list(changed)) if changed else {}
                base = await self._runs.files_with(instance, b"", list(changed)) if files else {}
        except (UnreadablePatch, ServiceError) as error:
            return replace(assay, faults=Faults(why=str(error)))
        if not files:
            return replace(assay, faults=Faults(why="gold changes no Python outside of the tests"))
        # a fault may make a loop endless; that is noticed too
        slowest_s = max((trial.seconds for trial in assay.trials), default=0.0)
        limit_s = min(instance.eval_timeout_s, max(_LEAST_S, _SLOWER * slowest_s))
        instance = instance.model_copy(update={"eval_timeout_s": limit_s})
        faults = await self._mutants(instance, gold, files, changed)
        made = {path: stubs(base.get(path, b""), text, *changed[path]) for path, text in files.items()}
        return replace(assay, stubs=await self._stubs(instance, made), faults=faults)

    async def _mutants(
        self, instance: TaskInstance, gold: bytes, files: Mapping[str, bytes], changed: Mapping[str, _Lines]
    ) -> Faults:
        each = max(1, -(-self._plan.mutants // len(files)))
        made = [
            (path, mutant)
            for path, text in sorted(files.items())
            for mutant in mutants(text, changed[path].new, most=each, seed=f"{instance.instance_id}:{path}")
        ][: self._plan.mutants]
        if not made:
            return Faults(why="none can be made on the lines that gold changes")
        runs = await asyncio.gather(*(self._run(instance, gold, {path: mutant.text}) for path, mutant in made))
        survived = tuple(
            f"{path}:{mutant.line} {mutant.what}"
            for (path, mutant), run in zip(made, runs, strict=True)
            if run.name is VerdictName.RESOLVED
        )
        return Faults(made=sum(run.name is not VerdictName.INFRA for run in runs), survived=survived)

    async def _stubs(
        self, instance: TaskInstance, made: Mapping[str, Mapping[str, bytes]]
    ) -> dict[str, tuple[str, ...]]:
        """What a stub does -> the F2P tests that pass; nothing else of gold is there."""
        f2p, _ = names_of(instance)
        found: dict[str, tuple[str, ...]] = {}
        for body in dict.fromkeys(body for bodies in made.values() for body in bodies):
            altered = {path: bodies.get(body, bodies["return None"]) for path, bodies in made.items() if bodies}
            run = await self._run(instance, b"", altered)
            passed = run.passed | ({COMMAND} if run.name is VerdictName.RESOLVED else set())
            found[body] = tuple(test for test in f2p if test in passed)
        return found

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


def _changed_lines(instance: TaskInstance) -> dict[str, _Lines]:
    """Python files that gold changes, no tests, with the lines that it takes away and adds."""
    tests = {change.new for change in read_changes(instance.test_patch)} if instance.test_patch.strip() else set()
    found = {}
    for change in read_changes(instance.gold_patch):
        if change.new is not None and change.new.endswith(".py") and change.new not in tests:
            found[change.new] = _Lines(
                [line for block in change.blocks for line in block.old_lines],
                [line for block in change.blocks for line in block.new_lines],
            )
    return {path: lines for path, lines in found.items() if lines.new or lines.old}
