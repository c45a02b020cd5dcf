"""Verdicts and rewards of ended sessions: grading starts when the patch is stored; its verdict is stored and reused.

A grading is a job (`state.jobs`), so another server can do it if this one dies. The server that took the patch starts
it at once if it has room; otherwise the first server with room takes the job.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox_server import telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import InfrastructureError, ServiceError
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.faults import Faults
from sandbox_server.scoring.session_grading import SessionGrading
from sandbox_server.state.signals import Signals
from sandbox_server.tasks import TaskSet
from sandbox_server.verdicts import GradedSession, Verdict, VerdictName

if TYPE_CHECKING:
    from sandbox_server.state.jobs import GradingJobs  # its library is a third of what the application imports

log = telemetry.logger(__name__)

_LOOK_S = 1.0  # interval of SQL reads while waiting for another node's grading; its signal usually comes sooner
_STANDING = 512  # cached verdicts, some 10 KB each: a trainer requests a batch at once, often twice


@dataclass(frozen=True, slots=True)
class RewardAnswer:
    """A verdict and its reward."""

    verdict: Verdict
    reward: float
    receipt: str = ""
    """Id of the stored record; "" if none is stored (pending, unknown_session)."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many gradings a node takes."""

    node: str
    slots: int
    """Gradings that run at a time."""
    prefetch: int
    """Further gradings that it takes while there are other nodes."""

    @property
    def most(self) -> int:
        """Gradings that it takes while there are other nodes."""
        return self.slots + self.prefetch


class Rewards:
    """Grades ended sessions, each in one task that all callers on this node share."""

    def __init__(
        self,
        queue: GradingQueue,
        grading: SessionGrading,
        history: History,
        instances: Instances,
        jobs: "GradingJobs",
        signals: Signals,
        faults: Faults,
        share: Share,
    ) -> None:
        self._queue = queue
        self._grading = grading
        self._faults = faults
        self._history = history
        self._instances = instances
        self._share = share
        self._running: dict[str, asyncio.Task[GradedSession]] = {}
        self._standing: OrderedDict[str, GradedSession] = OrderedDict()
        """Cache of final verdicts in SQL, least recently used first."""
        self._jobs = jobs
        self._signals = signals
        self.alone = True
        """Whether no other node takes gradings."""
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
        return self.well and not self._closing and len(self._running) < self._share.slots

    def room(self) -> bool:
        """Whether this node takes another grading."""
        return self.well and not self._closing and (self.alone or len(self._running) < self._share.most)

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
        """Whether the session's grading is under way here, or its final verdict is cached."""
        return sid in self._running or sid in self._standing

    async def wait_until_stored(self, sid: str, *, within_s: float) -> None:
        """Wait at most `within_s` seconds until the session's grading, if this node runs it, has stored its verdict."""
        if task := self._running.get(sid):
            await asyncio.wait({task}, timeout=within_s)

    def begin(self, session: SessionRecord, patch: PatchRecord | None = None) -> None:
        """Have a session with a patch in SQL graded, on this node or another; `patch` saves reading it."""
        sid = session.sid
        if sid in self._running or sid in self._standing:
            return
        lost = session.state == SessionState.LOST  # grading a lost session needs no container: any node does it at once
        if lost or (session.node == self._share.node and self.room() and not self._jobs.behind()):
            self._start(session, patch)
        elif not self.alone:
            self._queue.forget(sid)  # if another node takes the job, the container created here would stay unused
        if not lost:
            self._background(self._submit(session), f"grade-submit-{sid}")

    async def work(self, sid: str) -> bool:
        """Do a job: grade the session, or join its grading. False: not done, for instance because this server closes.

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
        began = time.monotonic()
        graded = self._standing.get(session.sid)
        if graded is None and (task := self._running.get(session.sid)):
            # Wait for the task first: its verdict is usually not in SQL yet (it is for a job that was delivered twice).
            graded = await self._within(task, session.sid, began + min(_LOOK_S, wait_s))
            if graded is not None:
                self._keep(graded)
                return _answer(graded)
        graded = graded or await self._history.graded(session.sid)
        if graded is None or graded.verdict.name is VerdictName.INFRA:
            if session.state == SessionState.LOST and graded is not None:
                return _answer(graded)  # there is nothing to grade
            graded = await self._next(session, graded, began + wait_s)
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
        """The next verdict after `before`, from any node; None if there is none by `deadline`."""
        self.begin(session)
        if task := self._running.get(session.sid):
            return await self._within(task, session.sid, deadline)
        async with self._signals.listen_for_verdict(session.sid) as told:
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
        instance = await self._instances.by_id(session.instance_id)
        graded = await self._grading.grade(session, instance, patch)
        self._keep(graded)
        self._background(self._tell_graded(graded.sid), f"graded-{graded.sid}")
        self._background(self._grading.localizing.keep(session, instance, graded), f"metrics-{graded.sid}")
        return graded


def _answer(graded: GradedSession) -> RewardAnswer:
    return RewardAnswer(graded.verdict, graded.reward, graded.receipt)
