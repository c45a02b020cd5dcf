"""Runs gradings in bounded slots, and grades the same patch of the same instance once for all who ask."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.base import Claims, GradeRequest
from sandbox_server.grading.durations import Durations
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.slots import SlotQueue, Ticket
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.verdicts import Verdict, VerdictName

log = telemetry.logger(__name__)

_LOOK_S = 1.0  # pause between two attempts to claim a key that another server is grading
_LONG_PATCH = 1 << 20  # bytes; hashing more than this takes over a millisecond
_REMEMBERED = 64  # more than can finish between a verdict and its write to SQL


def grade_key(instance: TaskInstance, patch: bytes | None, facts: Mapping[str, object], patch_cause: str = "") -> str:
    """SHA-256 (hex) of everything a verdict depends on: the whole instance, the patch, and `Grading.facts`.

    Without a patch, `patch_cause` counts too, because the verdict quotes it.
    """
    known = {
        "instance": instance.model_dump(mode="json"),
        "patch": None if patch is None else hashlib.sha256(patch).hexdigest(),
        "facts": dict(facts),
        "patch_cause": "" if patch else patch_cause,
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


class VerdictStore(Protocol):
    """Reads stored verdicts."""

    async def verdict_by_key(self, grade_key: str, /) -> Verdict | None:
        """The unmasked verdict stored under this key. Raises CatalogueUnavailable."""
        ...

    async def grading_seconds(self, instance_id: str, /) -> float | None:
        """Recent duration of the instance's unmasked gradings, or None. Raises CatalogueUnavailable."""
        ...


class GradingQueue:
    """All gradings of this node.

    Callers that ask for the same key share one grading; a caller that is cancelled does not affect the others. The last
    few unmasked verdicts stay in memory, so that none is graded again before it is written to SQL. A masked verdict is
    dropped, so the next request grades again.

    Before a caller acknowledges a verdict, it writes the verdict to SQL under `key(request, verdict)` and then calls
    `written` with the key that it asked for. With several servers, `claims` lets one server at a time grade a key; the
    others wait for the verdict that it writes.
    """

    def __init__(
        self,
        grading: Grading,
        store: VerdictStore,
        *,
        concurrency: int,
        claims: Claims | None = None,
        used: Callable[[str, float], None] = lambda account, seconds: None,
    ) -> None:
        """At most `concurrency` gradings run at a time; `grading.slots` defines their order.

        `used(account, seconds)` is called at the end of each grading, with the seconds for which it held its slot.
        """
        self._used = used
        self._grading = grading
        self._store = store
        self._slots = SlotQueue(concurrency)
        self._durations = Durations(store.grading_seconds)
        self._running: dict[str, asyncio.Task[Verdict]] = {}
        self._sids: dict[str, set[str]] = {}
        """Key -> sessions that share the running grading."""
        self._recent: OrderedDict[str, Verdict] = OrderedDict()
        self._claims = claims
        self._claimed: dict[str, Any] = {}
        self._unneeded: dict[str, set[str]] = {}
        """Key -> sessions whose verdict was stored already; `written` drops the containers created ahead for them."""

    async def key(self, request: GradeRequest, verdict: Verdict | None = None) -> str:
        """The key under which the verdict is shared; `verdict`, if given, supplies the image digest."""
        facts = await self._grading.facts(request.instance)
        if verdict is not None and verdict.image_digest:
            facts = {**facts, "image": verdict.image_digest}
        arguments = (request.instance, request.patch, facts, request.patch_cause)
        if len(request.patch or b"") > _LONG_PATCH:
            return await asyncio.to_thread(grade_key, *arguments)
        return grade_key(*arguments)

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """Announce that a patch of `sid` will come soon. Call `verdict` or `forget` afterwards."""
        self._grading.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """Take back `expect`: no patch of `sid` will come."""
        self._grading.forget(sid)

    async def prepare(self, instance: TaskInstance) -> None:
        """Start what the grader of `instance` needs and is slow to start. Raises GraderBroken."""
        await self._grading.prepare(instance)

    def awaited(self, sid: str) -> AbstractContextManager[None]:
        """Raise the priority of the grading of `sid` while in the block: somebody is waiting for its verdict."""
        return self._slots.awaited(sid)

    async def wait_until_uncrowded(self) -> None:
        """Return once no grading of this node waits for a slot."""
        await self._slots.wait_until_uncrowded()

    @property
    def count(self) -> int:
        """Gradings that run or wait on this node."""
        return len(self._running)

    async def verdict(self, request: GradeRequest, key: str = "", *, wait_s: float | None = None) -> Verdict:
        """The stored verdict, or that of the grading under way, or of a new one; `pending` after `wait_s` seconds.

        `key` saves computing the key again if the caller has just done so.
        """
        task = self._task(key or await self.key(request), request)
        await asyncio.wait({task}, timeout=wait_s)  # a cancelled wait does not cancel the task
        return task.result() if task.done() else self.pending(request, wait_s or 0.0)

    def pending(self, request: GradeRequest, waited_s: float) -> Verdict:
        """A masked `pending` verdict, for a grading that has not finished after `waited_s` seconds."""
        cause = f"the grading is not finished after {waited_s:g} s; ask again"
        return ungraded(request, VerdictName.PENDING, mask=True, cause=cause)

    async def written(self, key: str) -> None:
        """Note that the verdict of `key` is in SQL, or never will be: other servers may stop waiting for it."""
        for sid in self._unneeded.pop(key, ()):
            self._grading.forget(sid)
        claim = self._claimed.pop(key, None)
        if claim is not None and self._claims is not None:
            await self._claims.unclaim(claim)

    async def close(self) -> None:
        """Cancel all gradings, remove their containers and stop the graders."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._grading.close()

    def _task(self, key: str, request: GradeRequest) -> asyncio.Task[Verdict]:
        task = self._running.get(key)
        if task is None:
            self._sids[key] = {request.sid}
            task = self._running[key] = asyncio.create_task(self._grade(key, request), name=f"grade-{key[:12]}")
            task.add_done_callback(lambda _: self._ended(key))
        elif request.sid not in self._sids[key]:
            self._sids[key].add(request.sid)
            self._grading.forget(request.sid)  # the first session's container serves both
        return task

    def _ended(self, key: str) -> None:
        del self._running[key], self._sids[key]

    async def _grade(self, key: str, request: GradeRequest) -> Verdict:
        stored = None
        try:
            if stored := await self._stored(key):
                return stored
            if request.instance.grader is None or not (request.patch or b"").strip():
                return await self._grading.grade(request)  # no tests are run
            return await self._elsewhere(key) or await self._grade_in_turn(key, request)
        finally:
            if stored is None:
                self._grading.forget(request.sid)
            else:
                self._unneeded.setdefault(key, set()).add(request.sid)

    async def _elsewhere(self, key: str) -> Verdict | None:
        """Wait while another server grades `key` and return its verdict. None: this server must grade it."""
        while self._claims is not None:
            try:
                claim = await self._claims.claim(f"grade:{key}")
            except InfrastructureError as error:  # grading twice is better than not at all
                log.warning("cannot tell whether another node grades the same key", key=key, error=error.detail)
                return None
            if claim is not None:
                self._claimed[key] = claim
                return await self._stored(key)  # it may have been written since the caller looked
            await asyncio.sleep(_LOOK_S)
            if stored := await self._stored(key):
                return stored
        return None

    async def _grade_in_turn(self, key: str, request: GradeRequest) -> Verdict:
        queued = time.monotonic()
        instance_id = request.instance.instance_id
        expected_s = 0.0
        if self._slots.full:
            self._grading.expect(request.instance, request.sid)
            expected_s = await self._durations.expected(instance_id)
        await self._grading.make_image(request.instance)
        ticket = Ticket(request, expected_s, self._sids[key], since=queued)
        await self._slots.enter(ticket)
        began = time.monotonic()
        try:
            waited_s = began - queued
            telemetry.GRADE_SECONDS.labels("queue").observe(waited_s)
            verdict = await self._grading.grade(request, partial(self._slots.released, ticket))
        finally:
            if ticket.granted.is_set():
                self._slots.leave(ticket)
            self._used(request.account, time.monotonic() - began)
            self._make_ahead()
        if "tests" in verdict.timings_s:
            self._durations.learn(instance_id, verdict.timings_s["total"])
        verdict = replace(verdict, timings_s={"queue": waited_s, **verdict.timings_s})
        if not verdict.mask:
            self._recent[await self.key(request, verdict)] = verdict
            if len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        return verdict

    def _make_ahead(self) -> None:
        """Create containers ahead for the next gradings in the queue."""
        for ticket in self._slots.next():
            self._grading.expect(ticket.request.instance, ticket.request.sid)

    async def _stored(self, key: str) -> Verdict | None:
        if recent := self._recent.get(key):
            return recent
        try:
            return await self._store.verdict_by_key(key)
        except InfrastructureError:
            log.warning("stored verdicts cannot be read; grading", key=key, exc_info=True)
            return None
