"""`sandbox-server instances certify`: measures how reliable instances' tests are, by repeated runs of known patches."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import typer

from sandbox_server.app.catalogue import open_catalogue
from sandbox_server.app.engine import open_runtime
from sandbox_server.app.grading import grading_of
from sandbox_server.app.workspaces import open_workspaces
from sandbox_server.catalogue.certificate_key import CertificateKey
from sandbox_server.catalogue.certificates import Certificates
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.cli import configuration
from sandbox_server.cli.progress import Progress, progress
from sandbox_server.errors import ServiceError
from sandbox_server.grading.altering import gather_or_cancel
from sandbox_server.grading.assay import Assay, Finding, finding
from sandbox_server.grading.assay_runs import AssayRuns, Plan
from sandbox_server.grading.assays import Assays
from sandbox_server.grading.grading import Grading
from sandbox_server.sandbox.base import Runtime

_ALL = 1_000_000
_BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(200_000))\n"
"""Keeps one CPU busy, and ends when its parent does."""


@dataclass(slots=True)
class _Work:
    """The state of one instance."""

    instance: TaskInstance
    digest: str = ""
    assay: Assay = field(default_factory=Assay)
    failed: str = ""
    """Why it cannot be certified; else ""."""

    @property
    def found(self) -> Finding:
        """The result so far."""
        return Finding(sound=False, why=self.failed) if self.failed else finding(self.instance, self.assay)


class _Certifying:
    """Runs each phase for all instances before the next: quiet runs must not overlap with runs under load."""

    def __init__(self, grading: Grading, assays: Assays, plan: Plan, bar: Progress) -> None:
        self._grading = grading
        self._assays = assays
        self._assay_runs = AssayRuns(grading, plan, ran=bar.ran)
        self._bar = bar
        self._plan = plan
        self._room = asyncio.Semaphore(plan.at_once)

    def runs(self, work: _Work) -> int:
        """Approximate number of remaining runs."""
        if work.failed:
            return 0
        ahead = sum(self._assay_runs.missing(work.assay, load=load) for load in (False, True))
        return ahead + (self._plan.mutants + 2 if work.assay.faults is None else 0)

    async def certify(self, works: Sequence[_Work]) -> None:
        """Complete and store the assays of all instances."""
        await self._each("quiet", works, lambda work: self._repeat(work, load=False))
        with _busy():
            await self._each("under load", works, lambda work: self._repeat(work, load=True))
        await self._each("faults and false tests", works, self._fault)

    async def _each(self, phase: str, works: Sequence[_Work], step: Callable[[_Work], Awaitable[None]]) -> None:
        async def one(work: _Work) -> None:
            if work.failed:
                return
            before = work.assay
            try:
                await step(work)
                if work.assay is not before:
                    await self._assays.keep(work.instance, work.digest, work.assay)
            except ServiceError as error:
                work.failed = f"{error.code}: {error.detail}"
            self._bar.tell(f"{phase}: {work.instance.instance_id} {work.failed}".rstrip())

        await gather_or_cancel(*map(one, works))  # no signal leaves one behind that still has a container

    async def _repeat(self, work: _Work, *, load: bool) -> None:
        if self._assay_runs.missing(work.assay, load=load):
            work.assay = await self._assay_runs.repeat(work.instance, work.assay, load=load)

    async def _fault(self, work: _Work) -> None:
        if work.assay.faults is not None or not finding(work.instance, work.assay).sound:
            return
        work.assay = await self._assay_runs.fault(work.instance, work.assay)
        if self._grading.confirming is not None:
            key = CertificateKey.of(work.instance, work.digest)
            async with self._room:
                await self._grading.confirming.certifying.variants(work.instance, key)


async def certify(ids: Sequence[str], *, jobs: int, times: int, mutants: int, again: bool) -> int:
    """Certify these instances, or all gradable ones; return the number that are not sound."""
    settings = configuration.load()
    plan = Plan(times=times, mutants=mutants, at_once=jobs or max(1, (os.cpu_count() or 1) // 2))
    began = time.monotonic()
    async with (
        open_catalogue(settings) as database,
        open_runtime(settings, guest=f"certify-{os.getpid()}") as runtime,
        open_workspaces(settings, runtime) as workspaces,
    ):
        instances = Instances(database)
        assays = Assays(Certificates(database))
        grading = grading_of(settings, runtime, database, workspaces)
        try:
            names = ids or [s.instance_id for s in await instances.list(gradable=True, limit=_ALL)]
            found = [await instances.by_id(name) for name in names]
            works = [_Work(instance) for instance in found if not instance.localizes]
            if not works:
                raise SystemExit("error: no instance to certify; `sandbox-server instances import FILE` adds some")
            for work in works:
                await _open(work, assays, runtime, again=again)
            with progress("runs") as bar:
                certifying = _Certifying(grading, assays, plan, bar)
                bar.begin(sum(map(certifying.runs, works)))
                await certifying.certify(works)
            for work in works:
                known = work.found
                await instances.mark_verified(work.instance.instance_id, *_verification(work), time.time())
                typer.echo(
                    f"{'ok  ' if known.sound else 'FAIL'}  {work.instance.instance_id}  {known.said or known.why}"
                )
        finally:
            await grading.close()
    unsound = sum(not work.found.sound for work in works)
    took = f"{time.monotonic() - began:.0f} s, {plan.at_once} at a time"
    typer.echo(f"{len(works) - unsound} of {len(works)} sound, {took}; `instances certificates` shows them")
    return unsound


async def _open(work: _Work, assays: Assays, runtime: Runtime, *, again: bool) -> None:
    if work.instance.grader is None:
        work.failed = f"it cannot be graded: {work.instance.ungradable_because}"
        return
    if not work.instance.gold_patch.strip():
        work.failed = "no gold patch is known"
        return
    try:
        work.digest = (await runtime.images.resolve(work.instance.sandbox.images)).digest
        if not again:
            work.assay = await assays.of(work.instance, work.digest)
    except ServiceError as error:
        work.failed = f"{error.code}: {error.detail}"


def _verification(work: _Work) -> tuple[str, str]:
    """The verdicts of (gold, empty) as `verify` stores them: of several, the one worst for the instance."""
    if work.found.sound:
        return "resolved", "unresolved"
    gold = [trial.verdict for trial in work.assay.trials if trial.gold and trial.verdict != "resolved"]
    empty = [trial.verdict for trial in work.assay.trials if not trial.gold and trial.verdict != "unresolved"]
    return (gold or (["resolved"] if work.assay.trials else ["infra"]))[0], (empty or ["unresolved"])[0]


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep every CPU busy."""
    burners = [subprocess.Popen([sys.executable, "-I", "-c", _BURN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
