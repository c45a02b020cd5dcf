"""Verdict and reward of ended sessions: begun when the patch is there, stored once, answered ever after."""

import asyncio
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict

from sandbox_server import telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.base import GradeRequest, Reward
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import GradedSession, PatchRecord, SessionRecord, Verdict, VerdictName
from sandbox_server.sessions.base import RewardAnswer
from sandbox_server.sessions.lifecycle import SessionState

log = telemetry.logger(__name__)

_LOG_TAIL_IN_RECEIPT = 20_000  # characters of the test log


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

    def begin(self, session: SessionRecord) -> asyncio.Task[GradedSession]:
        """Grade the ended session, or join the grading under way."""
        task = self._running.get(session.sid)
        if task is None:
            task = self._running[session.sid] = asyncio.create_task(self._grade(session), name=f"grade-{session.sid}")
            task.add_done_callback(lambda done: self._ended(session.sid, done))
        return task

    async def answer(self, session: SessionRecord, *, wait_s: float) -> RewardAnswer:
        """The stored verdict, or that of the grading under way or begun now; `pending` past `wait_s` seconds.

        An `infra` verdict is not the last word: it is graded again at each request.
        """
        graded = await self._history.graded(session.sid)
        if graded is None or graded.verdict.name is VerdictName.INFRA:
            if session.state == SessionState.LOST and graded is not None:
                return _answer(graded)  # nothing is left that could be graded
            task = self.begin(session)
            await asyncio.wait({task}, timeout=wait_s)
            if not task.done():
                cause = f"the grading is not finished after {wait_s:g} s; ask again"
                return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=cause), 0.0)
            graded = task.result()
        return _answer(graded)

    async def close(self) -> None:
        """Stop; what was under way is graded again after the next start."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, sid: str, task: asyncio.Task[GradedSession]) -> None:
        self._running.pop(sid, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("grading could not be stored; the next reward request tries again", sid=sid, error=str(error))

    async def _grade(self, session: SessionRecord) -> GradedSession:
        instance = await self._instances.by_id(session.instance_id)
        patch = await self._history.patch(session.sid)
        request = GradeRequest(
            instance=instance,
            patch=None if patch is None else patch.diff,
            sid=session.sid,
            patch_cause="" if patch is None else patch.cause,
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
            graded_at=time.time(),
        )
        telemetry.VERDICTS.labels(verdict.name.value, str(verdict.mask).lower()).inc()
        log.info(
            "graded",
            sid=session.sid,
            instance_id=session.instance_id,
            verdict=verdict.name.value,
            mask=verdict.mask,
            reward=reward,
            seconds=round(verdict.timings_s.get("total", 0.0), 2),
        )
        return await self._history.save_graded(graded, self._receipt(graded, session, patch, instance.base_commit), key)

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
