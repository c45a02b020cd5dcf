"""Ends sessions on request, and answers with their rewards."""

import asyncio
import time

from sandbox_server import telemetry
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.scoring.rewards import RewardAnswer, Rewards
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.verdicts import Verdict, VerdictName

log = telemetry.logger(__name__)


class Ends:
    """`SessionEnder`, followed by the grading; concurrent requests for the end of a session share one task."""

    def __init__(self, data: SessionData, ending: SessionEnder, rewards: Rewards, *, reward_wait_s: float) -> None:
        """`reward_wait_s`: how long `reward` waits in all (SANDBOX_REWARD_WAIT_S)."""
        self._data = data
        self._ending = ending
        self._rewards = rewards
        self._reward_wait_s = reward_wait_s
        self._ends: dict[str, asyncio.Task[SessionRecord | None]] = {}

    async def end(self, sid: str, reason: str) -> SessionRecord | None:
        """End the session for `reason` and begin its grading."""
        record = await self._ending.end(sid, reason)
        if (
            record is None
            or not record.kind.is_rollout
            or record.state != SessionState.ENDED
            or self._rewards.known(sid)
        ):
            return record
        if await self._data.history.graded(sid) is None:
            self._rewards.begin(record)
        return record

    async def close(self, sid: str) -> SessionRecord | None:
        """As `end`, for a client that needs the session no longer."""
        return await self.end(sid, "closed")

    async def lose(self, sid: str, cause: str) -> None:
        """End a session in which nothing can run any more; see `SessionEnder.lose`."""
        await self._ending.lose(sid, cause)

    def end_detached(self, sid: str, reason: str) -> asyncio.Task[SessionRecord | None]:
        """End the session in a task that survives the cancellation of a request; concurrent requests share it."""
        task = self._ends.get(sid)
        if task is None:
            task = self._ends[sid] = asyncio.create_task(self.end(sid, reason), name=f"end-{sid}")
            task.add_done_callback(lambda done: self._ended_detached(sid, done))
        return task

    def _ended_detached(self, sid: str, task: asyncio.Task[SessionRecord | None]) -> None:
        del self._ends[sid]
        if not task.cancelled() and (error := task.exception()):
            log.warning("session not ended; the next request or the reaper tries again", sid=sid, error=str(error))

    async def reward(self, sid: str) -> RewardAnswer:
        """See `sessions.base.Sessions.reward`."""
        began = time.monotonic()
        wait_s = self._reward_wait_s  # in total: a client whose own limit passes first would record 0.0
        record = await self._data.session(sid)
        if record is not None and not record.kind.is_rollout:
            cause = f"session {sid} is a box: nothing of it is graded"
            return RewardAnswer(Verdict(VerdictName.UNKNOWN_SESSION, mask=True, cause=cause), 0.0)
        if record is not None and record.state not in OVER:
            ending = self.end_detached(sid, "reward")
            await asyncio.wait({ending}, timeout=wait_s)
            if not ending.done():
                cause = f"an action or the end of the session is under way for {wait_s:g} s; ask again"
                return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=cause), 0.0)
            record = ending.result()
        if record is None:
            cause = "no such session: its start failed, or its records were removed"
            return RewardAnswer(Verdict(VerdictName.UNKNOWN_SESSION, mask=True, cause=cause), 0.0)
        return await self._rewards.answer(record, wait_s=max(0.0, wait_s - (time.monotonic() - began)))
