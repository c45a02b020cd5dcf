"""Verdict and reward of ended sessions: begun when the patch is there, stored once, answered ever after."""

import asyncio
import math
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import ServiceError
from sandbox_server.grading.base import GradeRequest, Reward
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import GradedSession, PatchRecord, SessionRecord, Verdict, VerdictName
from sandbox_server.sessions.base import RewardAnswer
from sandbox_server.sessions.lifecycle import SessionState

log = telemetry.logger(__name__)

_LOG_TAIL_IN_RECEIPT = 20_000  # characters of the test log
_STANDING = 512  # verdicts answered without SQL, some 10 KB each: a trainer asks for a batch at once, often twice


class Rewards:
    """Grades ended sessions, each in one task that all who ask wait for."""

    def __init__(
        self,
        queue: GradingQueue,
        history: History,
        instances: Instances,
        rewards: Mapping[str, Reward],
        *,
        reward: str,
        node: str,
    ) -> None:
        """Raises ValueError when there is no reward function called `reward`."""
        if reward not in rewards:
            raise ValueError(f"there is no reward {reward!r}; SANDBOX_REWARD is one of {', '.join(sorted(rewards))}")
        self._queue = queue
        self._history = history
        self._instances = instances
        self._reward = rewards[reward]
        self._reward_name = reward
        self._node = node
        self._running: dict[str, asyncio.Task[GradedSession]] = {}
        self._standing: OrderedDict[str, GradedSession] = OrderedDict()
        """Verdicts in SQL that nothing replaces any more, the least used first."""
        self._preparing: set[asyncio.Task[None]] = set()

    def prepare(self, instance: TaskInstance) -> None:
        """A session of `instance` has started: have what its grading needs and what is slow to begin, by and by."""
        task = asyncio.create_task(self._prepare(instance), name=f"grade-prepare-{instance.instance_id}")
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """The session is about to end: its grading's container is made meanwhile. `begin` or `forget` follows."""
        self._queue.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """The session has no patch to grade, or its end failed."""
        self._queue.forget(sid)

    def known(self, sid: str) -> bool:
        """Its grading is under way here, or its verdict stands."""
        return sid in self._running or sid in self._standing

    def begin(self, session: SessionRecord, patch: PatchRecord | None = None) -> asyncio.Task[GradedSession]:
        """Grade the session whose patch is in SQL (and here, if it was just taken), or join the grading under way."""
        task = self._running.get(session.sid)
        if task is None:
            work = self._grade(session, patch)
            task = self._running[session.sid] = asyncio.create_task(work, name=f"grade-{session.sid}")
            task.add_done_callback(lambda done: self._ended(session.sid, done))
        return task

    async def answer(self, session: SessionRecord, *, wait_s: float) -> RewardAnswer:
        """The stored verdict, or that of the grading under way or begun now; `pending` past `wait_s` seconds.

        An `infra` verdict is not the last word: it is graded again at each request.
        """
        graded = self._standing.get(session.sid) or await self._history.graded(session.sid)
        if graded is None or graded.verdict.name is VerdictName.INFRA:
            if session.state == SessionState.LOST and graded is not None:
                return _answer(graded)  # nothing is left that could be graded
            task = self.begin(session)
            with self._queue.awaited(session.sid):
                await asyncio.wait({task}, timeout=wait_s)
            if not task.done():
                cause = f"the grading is not finished after {wait_s:g} s; ask again"
                return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=cause), 0.0)
            graded = task.result()
        self._keep(graded)
        return _answer(graded)

    async def close(self) -> None:
        """Stop; what was under way is graded again after the next start."""
        tasks = [*self._running.values(), *self._preparing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, sid: str, task: asyncio.Task[GradedSession]) -> None:
        self._running.pop(sid, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("grading could not be stored; the next reward request tries again", sid=sid, error=str(error))

    def _keep(self, graded: GradedSession) -> None:
        if graded.verdict.name is VerdictName.INFRA:
            return  # graded again when asked for
        self._standing[graded.sid] = graded
        self._standing.move_to_end(graded.sid)
        if len(self._standing) > _STANDING:
            self._standing.popitem(last=False)

    async def _prepare(self, instance: TaskInstance) -> None:
        try:
            await self._queue.prepare(instance)
        except ServiceError as error:  # its grading meets it again, and tells
            log.warning("grading not prepared", instance_id=instance.instance_id, code=error.code, error=error.detail)

    async def _grade(self, session: SessionRecord, patch: PatchRecord | None) -> GradedSession:
        if standing := self._standing.get(session.sid):
            return standing
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
            key, verdict = "", ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
        else:
            key = self._queue.key(request)
            verdict = await self._queue.verdict(request)
        reward = 0.0 if verdict.mask else self._reward(instance, verdict)
        if not math.isfinite(reward):
            raise ValueError(f"the reward {self._reward_name} gave {reward} for {verdict.name}")
        graded = GradedSession(
            sid=session.sid,
            instance_id=session.instance_id,
            verdict=verdict,
            reward=float(reward),
            reward_name=self._reward_name,
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


def _answer(graded: GradedSession) -> RewardAnswer:
    return RewardAnswer(graded.verdict, graded.reward, graded.receipt)
