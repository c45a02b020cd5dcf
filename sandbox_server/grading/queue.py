"""Gradings wait for a slot, and the same patch of the same instance is graded once for all who ask."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.durations import Durations
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.line import Line, Turn
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import Verdict, VerdictName

log = telemetry.logger(__name__)

_LOOK_S = 1.0  # pause of who waits for another server's grading
_LONG_PATCH = 1 << 20  # bytes; its hash takes a millisecond
_REMEMBERED = 64  # more than can end between a verdict and its writing


def grade_key(instance: TaskInstance, patch: bytes | None, facts: Mapping[str, object], patch_cause: str = "") -> str:
    """SHA-256 (hex) over all that a verdict depends on: the whole instance, the patch, and `Grading.facts`.

    And, where there is no patch, on why: the verdict says it.
    """
    known = {
        "instance": instance.model_dump(mode="json"),
        "patch": None if patch is None else hashlib.sha256(patch).hexdigest(),
        "facts": dict(facts),
        "patch_cause": "" if patch else patch_cause,
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


class VerdictStore(Protocol):
    """Where written verdicts are found again."""

    async def verdict_by_key(self, grade_key: str, /) -> Verdict | None:
        """An unmasked verdict that was written under this key. Raises CatalogueUnavailable."""
        ...

    async def grading_seconds(self, instance_id: str, /) -> float | None:
        """What the last unmasked gradings of the instance took; None: there are none. Raises CatalogueUnavailable."""
        ...


class Claims(Protocol):
    """Which server grades what, among all."""

    async def claim(self, name: str, /) -> Any:
        """Whatever `unclaim` takes, once `name` is this server's; None: another one has it. Raises StateUnavailable."""
        ...

    async def unclaim(self, claim: Any, /) -> None:
        """Give it back."""
        ...


class GradingQueue:
    """All gradings of this node.

    One grading serves every caller that asks while it runs, also when it ends masked; a masked verdict is
    forgotten with it, so that the next request grades again. A caller that leaves takes nothing from the others.
    Whoever acknowledges a verdict writes it under its `key`, then says `written` of the key that it began with;
    until then the last few are remembered here. Of several servers one grades a key at a time, by `claims`; the
    others wait for what it writes.
    """

    def __init__(
        self, grading: Grading, store: VerdictStore, *, concurrency: int, claims: Claims | None = None
    ) -> None:
        """At most `concurrency` gradings run at a time; see `grading.line` for their order."""
        self._grading = grading
        self._store = store
        self._line = Line(concurrency)
        self._durations = Durations(store.grading_seconds)
        self._running: dict[str, asyncio.Task[Verdict]] = {}
        self._sids: dict[str, set[str]] = {}
        """Key -> the sessions that share the grading under way."""
        self._recent: OrderedDict[str, Verdict] = OrderedDict()
        self._claims = claims
        self._claimed: dict[str, Any] = {}

    async def key(self, request: GradeRequest, verdict: Verdict | None = None) -> str:
        """The key under which the request's verdict is shared; `verdict` knows on which image it was found."""
        facts = await self._grading.facts(request.instance)
        if verdict is not None and verdict.image_digest:
            facts = {**facts, "image": verdict.image_digest}
        arguments = (request.instance, request.patch, facts, request.patch_cause)
        if len(request.patch or b"") > _LONG_PATCH:
            return await asyncio.to_thread(grade_key, *arguments)
        return grade_key(*arguments)

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """A patch of `sid` is about to come; `verdict` or `forget` follows."""
        self._grading.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """No patch of `sid` comes after all."""
        self._grading.forget(sid)

    async def prepare(self, instance: TaskInstance) -> None:
        """Have what is slow to begin ready by the time that `instance` is graded. Raises GraderBroken."""
        await self._grading.prepare(instance)

    def awaited(self, sid: str) -> AbstractContextManager[None]:
        """Within it somebody waits for the verdict of `sid`: its grading goes before those that nobody waits for."""
        return self._line.awaited(sid)

    @property
    def count(self) -> int:
        """Gradings that run or wait here."""
        return len(self._running)

    async def verdict(self, request: GradeRequest, key: str = "", *, wait_s: float | None = None) -> Verdict:
        """The verdict, stored, under way or begun now; `pending` when it is not there within `wait_s` seconds.

        `key` is the request's, of a moment ago, where the caller has it.
        """
        task = self._task(key or await self.key(request), request)
        await asyncio.wait({task}, timeout=wait_s)  # cancelling this wait leaves the task alone
        return task.result() if task.done() else self.pending(request, wait_s or 0.0)

    def pending(self, request: GradeRequest, waited_s: float) -> Verdict:
        """In place of a verdict that is not there after `waited_s` seconds."""
        cause = f"the grading is not finished after {waited_s:g} s; ask again"
        return ungraded(request, VerdictName.PENDING, mask=True, cause=cause)

    async def written(self, key: str) -> None:
        """What was found under `key` is in SQL, or will not be: other servers need wait no longer."""
        claim = self._claimed.pop(key, None)
        if claim is not None and self._claims is not None:
            await self._claims.unclaim(claim)

    async def close(self) -> None:
        """Stop all gradings, remove their containers, end the graders."""
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
            self._grading.forget(request.sid)  # the other one's container serves both
        return task

    def _ended(self, key: str) -> None:
        del self._running[key], self._sids[key]

    async def _grade(self, key: str, request: GradeRequest) -> Verdict:
        try:
            if stored := await self._stored(key):
                return stored
            if request.instance.grader is None or not (request.patch or b"").strip():
                return await self._grading.grade(request)  # nothing is run
            return await self._elsewhere(key) or await self._grade_in_turn(key, request)
        finally:
            self._grading.forget(request.sid)

    async def _elsewhere(self, key: str) -> Verdict | None:
        """Wait while another server grades the same; its verdict. None: grade, the key is this server's."""
        waited = False
        while self._claims is not None:
            try:
                claim = await self._claims.claim(f"grade:{key}")
            except InfrastructureError as error:  # twice is better than not at all
                log.warning("not known whether another node grades the same", key=key, error=error.detail)
                return None
            if claim is not None:
                self._claimed[key] = claim
                return await self._stored(key) if waited else None
            waited = True
            await asyncio.sleep(_LOOK_S)
            if stored := await self._stored(key):
                return stored
        return None

    async def _grade_in_turn(self, key: str, request: GradeRequest) -> Verdict:
        queued = time.monotonic()
        instance_id = request.instance.instance_id
        expected_s = 0.0
        if self._line.full:
            self._grading.expect(request.instance, request.sid)
            expected_s = await self._durations.expected(instance_id)
        await self._grading.make_image(request.instance)
        turn = Turn(request, expected_s, self._sids[key], since=queued)
        await self._line.enter(turn)
        try:
            waited_s = time.monotonic() - queued
            telemetry.GRADE_SECONDS.labels("queue").observe(waited_s)
            verdict = await self._grading.grade(request, partial(self._line.aside, turn))
        finally:
            if turn.granted.is_set():
                self._line.leave(turn)
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
        """The containers of those that go next, while others are in the slots."""
        for turn in self._line.next():
            self._grading.expect(turn.request.instance, turn.request.sid)

    async def _stored(self, key: str) -> Verdict | None:
        if recent := self._recent.get(key):
            return recent
        try:
            return await self._store.verdict_by_key(key)
        except InfrastructureError:
            log.warning("stored verdicts cannot be read; grading", key=key, exc_info=True)
            return None
