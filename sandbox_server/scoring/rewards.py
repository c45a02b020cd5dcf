"""Verdicts and rewards of ended sessions: grading starts when the patch is stored; its verdict is stored and reused.

A grading is a job (`state.jobs`), so another server can do it if this one dies. The server that took the patch starts
it at once if it has room; otherwise the first server with room takes the job.
"""

import asyncio
import contextlib
import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sandbox_server import clock, telemetry, traces
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import InfrastructureError, ServiceError
from sandbox_server.grading import tripwires
from sandbox_server.grading.base import GradeRequest, Reward
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import GradedSession, PatchRecord, SessionRecord, Verdict, VerdictName
from sandbox_server.sandbox.faults import Faults
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.state.jobs import GradingJobs
from sandbox_server.state.signals import Signals
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_LOG_TAIL_IN_RECEIPT = 20_000  # characters of the test log
_LOOK_S = 1.0  # interval of SQL reads while waiting for another node's grading; its signal usually comes sooner
_ROUNDED_S = 0.01  # measured stages may exceed the whole by this much
_STANDING = 512  # cached verdicts, some 10 KB each: a trainer requests a batch at once, often twice


@dataclass(frozen=True, slots=True)
class RewardAnswer:
    """A verdict and its reward."""

    verdict: Verdict
    reward: float
    receipt: str = ""
    """Id of the stored record; "" if none is stored (pending, unknown_session)."""


class Rewards:
    """Grades ended sessions, each in one task that all callers on this node share."""

    def __init__(
        self,
        queue: GradingQueue,
        history: History,
        instances: Instances,
        rewards: Mapping[str, Reward],
        jobs: GradingJobs,
        signals: Signals,
        localizing: Localizing,
        faults: Faults,
        *,
        reward: str,
        node: str,
        slots: int,
        prefetch: int,
    ) -> None:
        """Take up to `slots` + `prefetch` gradings while there are other nodes.

        Raises ValueError if no reward function is called `reward`.
        """
        if reward not in rewards:
            raise ValueError(f"there is no reward {reward!r}; SANDBOX_REWARD is one of {', '.join(sorted(rewards))}")
        self._queue = queue
        self._localizing = localizing
        self._faults = faults
        self._history = history
        self._instances = instances
        self._reward = rewards[reward]
        self._reward_name = reward
        self._node = node
        self._running: dict[str, asyncio.Task[GradedSession]] = {}
        self._standing: OrderedDict[str, GradedSession] = OrderedDict()
        """Cache of final verdicts in SQL, least recently used first."""
        self._jobs = jobs
        self._signals = signals
        self._slots = slots
        self._prefetch = prefetch
        self.alone = True
        """No other node takes gradings."""
        self.accepting = True
        """Whether this node reads jobs; follows its faults with a delay."""
        self._closing = False
        self._later = TaskSet("rewards")

    @property
    def well(self) -> bool:
        """Whether this node has no fault, so that new gradings can get a container."""
        return self.accepting and not self._faults.present

    @property
    def idle(self) -> bool:
        """Whether a new grading would start at once."""
        return self.well and not self._closing and len(self._running) < self._slots

    def room(self) -> bool:
        """Whether this node takes another grading."""
        most = self._slots + self._prefetch
        return self.well and not self._closing and (self.alone or len(self._running) < most)

    def prepare(self, instance: TaskInstance) -> None:
        """Prepare in the background what grading `instance` needs; called when its session starts."""
        if instance.localizes:
            return
        self._background(self._prepare(instance), f"grade-prepare-{instance.instance_id}")

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """Create the grading container while the session ends. `begin` or `forget` follows."""
        if not instance.localizes:
            self._queue.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """Undo `expect`: the session has no patch to grade, or its end failed."""
        self._queue.forget(sid)

    def known(self, sid: str) -> bool:
        """Whether its grading is under way here, or its final verdict is cached."""
        return sid in self._running or sid in self._standing

    def begin(self, session: SessionRecord, patch: PatchRecord | None = None) -> None:
        """Have a session with a patch in SQL graded, on this node or another; `patch` saves reading it."""
        sid = session.sid
        if sid in self._running or sid in self._standing:
            return
        lost = session.state == SessionState.LOST  # needs no container, so any node can do it at once
        if lost or (session.node == self._node and self.room() and not self._jobs.behind()):
            self._start(session, patch)
        if not lost:
            self._background(self._submit(session), f"grade-submit-{sid}")

    async def work(self, sid: str) -> bool:
        """Do a job: grade the session, or join its grading; False: not done, e.g. this server is closing.

        Raises:
            CatalogueUnavailable: not done; the job must be delivered again.
        """
        task = self._running.get(sid)
        if task is None:
            graded = self._standing.get(sid) or await self._history.graded(sid)
            if graded is not None and graded.verdict.name is not VerdictName.INFRA:
                return True
            session = await self._history.session(sid)
            if session is None:
                log.error("grading job without a known session", sid=sid)
                return True
            if self._closing:
                return False
            task = self._running.get(sid) or self._start(session, None)
        await asyncio.wait({task})
        return not task.cancelled() and bool(task.result())

    def awaited(self, sid: str) -> None:
        """Note that a reward request on another node waits for the session's grading."""
        if task := self._running.get(sid):
            self._background(self._until(task, sid), f"grade-awaited-{sid}")

    async def answer(self, session: SessionRecord, *, wait_s: float) -> RewardAnswer:
        """The stored verdict, or that of the current or a new grading; `pending` after `wait_s` seconds.

        An `infra` verdict is not final: each request grades again, unless the session is lost.
        """
        graded = self._standing.get(session.sid) or await self._history.graded(session.sid)
        if graded is None or graded.verdict.name is VerdictName.INFRA:
            if session.state == SessionState.LOST and graded is not None:
                return _answer(graded)  # there is nothing to grade
            graded = await self._next(session, graded, time.monotonic() + wait_s)
            if graded is None:
                cause = f"the grading is not finished after {wait_s:g} s; ask again"
                return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=cause), 0.0)
        self._keep(graded)
        return _answer(graded)

    async def close(self) -> None:
        """Stop; another node, or this one after its next start, does the unfinished gradings."""
        self._closing = True
        tasks = [*self._running.values(), *self._later]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(
        self, session: SessionRecord, before: GradedSession | None, deadline: float
    ) -> GradedSession | None:
        """The next verdict after `before`, from any node; None: not before `deadline`."""
        self.begin(session)
        if task := self._running.get(session.sid):
            return await self._within(task, session.sid, deadline)
        async with self._signals.graded(session.sid) as told:
            self._background(self._tell_awaited(session), f"grade-awaited-{session.sid}")
            while (left_s := deadline - time.monotonic()) > 0:
                told.clear()
                graded = await self._history.graded(session.sid)
                if graded is not None and (before is None or graded.receipt != before.receipt):
                    return graded
                if task := self._running.get(session.sid):  # this node took the job
                    return await self._within(task, session.sid, deadline)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_LOOK_S, left_s)):
                        await told.wait()
        return None

    async def _within(self, task: asyncio.Task[GradedSession], sid: str, deadline: float) -> GradedSession | None:
        with self._queue.awaited(sid):
            await asyncio.wait({task}, timeout=max(0.0, deadline - time.monotonic()))
        return task.result() if task.done() else None

    async def _until(self, task: asyncio.Task[GradedSession], sid: str) -> None:
        with self._queue.awaited(sid):
            await asyncio.wait({task})

    def _start(self, session: SessionRecord, patch: PatchRecord | None) -> asyncio.Task[GradedSession]:
        work = self._grade(session, patch)
        task = self._running[session.sid] = asyncio.create_task(work, name=f"grade-{session.sid}")
        task.add_done_callback(lambda done: self._ended(session.sid, done))
        return task

    async def _submit(self, session: SessionRecord) -> None:
        try:
            await self._jobs.submit(session.sid, session.node)
        except InfrastructureError as error:  # `GradingBalancer` finds it in SQL
            log.warning(
                "the grading could not be submitted; it will be submitted later",
                sid=session.sid,
                code=error.code,
                error=error.detail,
            )

    async def _tell_awaited(self, session: SessionRecord) -> None:
        with contextlib.suppress(InfrastructureError):  # it affects only the order of gradings
            await self._signals.tell_awaited(session.sid, session.node)

    async def _tell_graded(self, sid: str) -> None:
        with contextlib.suppress(InfrastructureError):  # waiting nodes also poll SQL
            await self._signals.tell_graded(sid)

    def _background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._later.start(work, name=name)

    def _ended(self, sid: str, task: asyncio.Task[GradedSession]) -> None:
        self._running.pop(sid, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("the grading could not be stored; it will run again", sid=sid, error=str(error))
        self._jobs.freed()

    def _keep(self, graded: GradedSession) -> None:
        if graded.verdict.name is VerdictName.INFRA:
            return  # graded again on request
        self._standing[graded.sid] = graded
        self._standing.move_to_end(graded.sid)
        if len(self._standing) > _STANDING:
            self._standing.popitem(last=False)

    async def _prepare(self, instance: TaskInstance) -> None:
        try:
            await self._queue.prepare(instance)
        except ServiceError as error:  # its grading will report the error
            log.warning("grading not prepared", instance_id=instance.instance_id, code=error.code, error=error.detail)

    async def _grade(self, session: SessionRecord, patch: PatchRecord | None) -> GradedSession:
        if standing := self._standing.get(session.sid):
            return standing
        began = clock.now()
        graded = await self._graded(session, patch)
        if traces.on():
            traces.span(session, _span(graded, began), asked=False)
        return graded

    async def _graded(self, session: SessionRecord, patch: PatchRecord | None) -> GradedSession:
        instance = await self._instances.by_id(session.instance_id)
        patch = patch or await self._history.patch(session.sid)
        request = GradeRequest(
            instance=instance,
            patch=None if patch is None else patch.diff,
            sid=session.sid,
            patch_cause="" if patch is None else patch.cause,
            run=session.run,
        )
        if patch is None:
            cause = f"the sandbox was lost before its patch was taken: {session.cause or session.end_reason}"
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
            return await self._store(session, instance, patch, verdict, "")
        if instance.localizes:
            verdict, composition = await self._localizing.verdict(session, instance)
            return await self._store(session, instance, patch, verdict, "", composition)
        key = await self._queue.key(request)
        try:
            verdict = await self._queue.verdict(request, key)
            key_of_verdict = await self._queue.key(request, verdict)
            verdict = replace(verdict, tripwires=await self._tripwires(session, request, verdict))
            return await self._store(session, instance, patch, verdict, key_of_verdict)
        finally:
            await self._queue.written(key)

    async def _tripwires(self, session: SessionRecord, request: GradeRequest, verdict: Verdict) -> dict[str, int]:
        try:
            actions = [action.content for action in await self._localizing.journals.of(session)]
        except InfrastructureError as error:  # missing tripwires must not cost the reward
            log.warning(
                "tripwires: the actions could not be read", sid=session.sid, code=error.code, error=error.detail
            )
            actions = []
        found = await asyncio.to_thread(tripwires.count, actions, request.patch, len(verdict.runner_files))
        for sign in found:
            telemetry.TRIPWIRES.labels(sign).inc()
        return found

    async def _store(
        self,
        session: SessionRecord,
        instance: TaskInstance,
        patch: PatchRecord | None,
        verdict: Verdict,
        key: str,
        composition: str = "",
    ) -> GradedSession:
        reward, name = 0.0, composition or self._reward_name
        if verdict.pays:
            reward = self._reward(instance, verdict) if verdict.score is None else verdict.score.total
        if not math.isfinite(reward):
            raise ValueError(f"the reward {name} gave {reward} for {verdict.name}")
        graded = GradedSession(
            sid=session.sid,
            instance_id=session.instance_id,
            verdict=verdict,
            reward=float(reward),
            reward_name=name,
            receipt=uuid.uuid4().hex,
            graded_at=clock.now(),
        )
        telemetry.VERDICTS.labels(verdict.name.value, str(verdict.mask).lower()).inc()
        log.info(
            "graded",
            sid=session.sid,
            instance_id=session.instance_id,
            run=session.run,
            verdict=verdict.name.value,
            mask=verdict.mask,
            reward=reward,
            seconds=round(verdict.timings_s.get("total", 0.0), 2),
        )
        receipt = self._receipt(graded, session, patch, instance.base_commit)
        with telemetry.GRADE_SECONDS.labels("store").time():
            graded = await self._history.save_graded(graded, receipt, key)
        self._keep(graded)
        self._background(self._tell_graded(graded.sid), f"graded-{graded.sid}")
        self._background(self._localizing.keep(session, instance, graded), f"metrics-{graded.sid}")
        return graded

    def _receipt(
        self, graded: GradedSession, session: SessionRecord, patch: PatchRecord | None, row_base_commit: str
    ) -> dict[str, object]:
        verdict = asdict(graded.verdict)
        verdict["name"] = graded.verdict.name.value
        verdict["log_tail"] = graded.verdict.log_tail[-_LOG_TAIL_IN_RECEIPT:]
        return {
            "receipt": graded.receipt,
            "sid": graded.sid,
            "instance_id": graded.instance_id,
            "run": session.run,
            "parent": session.parent,
            "forked_at": session.forked_at,
            "node": self._node,
            "reward": graded.reward,
            "reward_name": graded.reward_name,
            "graded_at": graded.graded_at,
            "base_commit": row_base_commit,
            "image_head": "" if patch is None else patch.base_commit,
            "patch_sha256": "" if patch is None else patch.sha256,
            "session_timings_s": dict(session.timings_s),
            "patch_bytes": 0 if patch is None or patch.diff is None else len(patch.diff),
            **verdict,
        }


def _span(graded: GradedSession, began: float) -> traces.Span:
    """The span of a stored grading, without stages if the verdict was found for another session with the same patch."""
    verdict = graded.verdict
    stages = {name: taken_s for name, taken_s in verdict.timings_s.items() if name != "total"}
    shared = sum(stages.values()) > graded.graded_at - began + _ROUNDED_S
    said: dict[str, traces.Value] = {
        "sandbox.verdict": verdict.name.value,
        "sandbox.masked": verdict.mask,
        "sandbox.reward": graded.reward,
        "sandbox.shared": shared,
    }
    now = clock.now()
    rows = () if shared else traces.in_a_row(stages, graded.graded_at)
    stored = traces.Span("store", graded.graded_at, now)
    error = verdict.cause if verdict.name is VerdictName.INFRA else ""
    return traces.Span("grading", began, now, said, error, (*rows, stored))


def _answer(graded: GradedSession) -> RewardAnswer:
    return RewardAnswer(graded.verdict, graded.reward, graded.receipt)
