"""Gradings wait for a slot, and the same patch of the same instance is graded once for all who ask."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.guard import RunnerFilePolicy
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import Verdict, VerdictName

log = telemetry.logger(__name__)

_REMEMBERED = 64  # more than can end between a verdict and its writing


def grade_key(
    instance: TaskInstance,
    patch: bytes | None,
    policy: RunnerFilePolicy,
    versions: Mapping[str, str],
    patch_cause: str = "",
) -> str:
    """SHA-256 (hex) over all that a verdict depends on: the whole instance, the patch, who judges, the guard.

    And, where there is no patch, on why: the verdict says it.
    """
    facts = {
        "instance": instance.model_dump(mode="json"),
        "patch": None if patch is None else hashlib.sha256(patch).hexdigest(),
        "policy": policy,
        "versions": dict(versions),
        "patch_cause": "" if patch else patch_cause,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class VerdictStore(Protocol):
    """Where written verdicts are found again."""

    async def verdict_by_key(self, grade_key: str, /) -> Verdict | None:
        """An unmasked verdict that was written under this key. Raises CatalogueUnavailable."""
        ...


class GradingQueue:
    """All gradings of this node.

    One grading serves every caller that asks while it runs, also when it ends masked; a masked verdict is
    forgotten with it, so that the next request grades again. A caller that leaves takes nothing from the others.
    Whoever acknowledges a verdict writes it under `key`; until then the last few are remembered here.
    """

    def __init__(self, grading: Grading, store: VerdictStore, *, concurrency: int) -> None:
        """At most `concurrency` gradings run at a time, first come first served."""
        self._grading = grading
        self._store = store
        self._slots = asyncio.Semaphore(concurrency)
        self._running: dict[str, asyncio.Task[Verdict]] = {}
        self._recent: OrderedDict[str, Verdict] = OrderedDict()

    def key(self, request: GradeRequest) -> str:
        """The key under which the request's verdict is shared."""
        versions = self._grading.versions(request.instance)
        return grade_key(request.instance, request.patch, self._grading.runner_files, versions, request.patch_cause)

    def submit(self, request: GradeRequest) -> str:
        """Begin (or join) the grading and return its key at once; `verdict` with the same request waits for it."""
        self._task(key := self.key(request), request)
        return key

    async def verdict(self, request: GradeRequest, *, wait_s: float | None = None) -> Verdict:
        """The verdict, stored, under way or begun now; `pending` when it is not there within `wait_s` seconds."""
        task = self._task(self.key(request), request)
        await asyncio.wait({task}, timeout=wait_s)  # cancelling this wait leaves the task alone
        if task.done():
            return task.result()
        cause = f"the grading is not finished after {wait_s:g} s; ask again"
        return ungraded(request, VerdictName.PENDING, mask=True, cause=cause)

    async def close(self) -> None:
        """Stop all gradings, remove their containers, end the graders."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._grading.close()

    def _task(self, key: str, request: GradeRequest) -> asyncio.Task[Verdict]:
        if not (task := self._running.get(key)):
            task = self._running[key] = asyncio.create_task(self._grade(key, request), name=f"grade-{key[:12]}")
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def _grade(self, key: str, request: GradeRequest) -> Verdict:
        if stored := await self._stored(key):
            return stored
        queued = time.monotonic()
        with telemetry.GRADINGS_WAITING.track_inprogress():
            await self._slots.acquire()
        try:
            waited_s = time.monotonic() - queued
            telemetry.GRADE_SECONDS.labels("queue").observe(waited_s)
            verdict = await self._grading.grade(request)
        finally:
            self._slots.release()
        verdict = replace(verdict, timings_s={"queue": waited_s, **verdict.timings_s})
        if not verdict.mask:
            self._recent[key] = verdict
            if len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return verdict

    async def _stored(self, key: str) -> Verdict | None:
        if recent := self._recent.get(key):
            return recent
        try:
            return await self._store.verdict_by_key(key)
        except InfrastructureError:
            log.warning("stored verdicts cannot be read; grading", key=key, exc_info=True)
            return None
