"""Ends sessions: takes the patch, writes the record, removes the container; a crash may interrupt it at any point.

The grading starts as soon as the patch is stored. Its container is created when the end begins.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from sandbox_server import clock, telemetry, traces
from sandbox_server.errors import (
    InfrastructureError,
    OwnedElsewhere,
    SandboxLost,
    SessionBusy,
    StateUnavailable,
    UnknownInstance,
)
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState, sources_of
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sessions.config import EndConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.final_patches import FinalPatches
from sandbox_server.sessions.redis_reconciler import RedisReconciler
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.starts.starts import Starts

log = telemetry.logger(__name__)

_HURRY_EVERY_S = 0.5  # interrupt repeatedly: several actions may be ahead of the end in the session's lock
_CLOSE_S = 30.0  # for pending removals when the server stops; the next server's reaper removes the rest

_VERDICT_FIRST_S = 0.1
"""Seconds that a removal waits for a verdict to be stored, which takes twice as long during the removal."""


class SessionEnder:
    """Ends sessions of this node. Ending a session is idempotent."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        patches: FinalPatches,
        starts: Starts,
        ownership: Ownership,
        restoring: Restoring,
        reconciler: RedisReconciler,
        config: EndConfig,
        interrupt: Callable[[str], None],
    ) -> None:
        """`interrupt(sid)` ends the running action of a session of this node."""
        self._interrupt = interrupt
        self._ownership = ownership
        self._restoring = restoring
        self._reconciler = reconciler
        self._runtime = runtime
        self._data = data
        self._patches = patches
        self._starts = starts
        self._config = config
        self._removing: dict[str, asyncio.Task[None]] = {}

    async def wait_until_removed(self, sid: str) -> None:
        """Wait until the container of an ended session is removed or left to the reaper."""
        if task := self._removing.get(sid):
            await asyncio.wait({task})

    async def close(self) -> None:
        """Wait for pending container removals."""
        if self._removing:
            await asyncio.wait(self._removing.values(), timeout=_CLOSE_S)

    async def end(self, sid: str, reason: str) -> SessionRecord | None:
        """End the session, begin its grading and return its record; None for an unknown sid.

        Waits for a running action or another end of the same session. Restores a dead node's session first, unless
        its patch is already stored.

        Raises:
            SessionBusy: the action, other end or restore did not finish in time.
            InfrastructureError: the session has not ended; retry.
            OwnedElsewhere: it belongs to another node.
        """
        record = await self._data.store.session(sid)
        if record is None:
            record = await self._data.history.session(sid)
            if record is not None and record.state not in OVER:
                raise StateUnavailable(f"Redis has lost session {sid}; the reaper puts it back, ask again")
            return record
        if record.state in OVER:
            return record
        return await (self._end_task if record.kind.is_rollout else self._end_box)(record, reason)

    async def _end_task(self, task: SessionRecord, reason: str) -> SessionRecord | None:
        sid, config = task.sid, self._config
        wait_s = config.command_timeout_s + config.action_wait_s + config.postprocess_timeout_s
        if not self._ownership.is_here(task):
            try:
                await self._take_over(task, wait_s)
            except SandboxLost as e:
                return await self.lose(sid, e.detail)
        async with self._hurrying(sid), self._data.store.lock(sid, wait_s):
            record = await self._data.store.session(sid)
            if record is None or record.state in OVER:
                return record
            if not self._ownership.is_here(record) and await self._data.history.patch(sid) is None:
                raise OwnedElsewhere(record.node)  # another node took it over meanwhile
            if self._reconciler.is_behind(record) and await self._reconciler.reconcile(sid):
                record = await self._data.store.session(sid) or record  # the policy's answer may be in these actions
            return await self._end_here(record, record.end_reason or reason)

    @asynccontextmanager
    async def _hurrying(self, sid: str) -> AsyncIterator[None]:
        """After SANDBOX_END_GRACE_S, interrupt the session's running action and those that wait for their turn."""

        async def hurry() -> None:
            await asyncio.sleep(self._config.end_grace_s)
            while True:
                self._interrupt(sid)
                await asyncio.sleep(_HURRY_EVERY_S)

        hurrying = asyncio.create_task(hurry())
        try:
            yield
        finally:
            hurrying.cancel()

    async def _end_box(self, box: SessionRecord, reason: str) -> SessionRecord | None:
        """End a box without a capture; a box of a dead node is lost."""
        if not self._ownership.is_here(box):
            await self._ownership.check_owner_dead(box)
            return await self.lose(box.sid, f"its host {box.node} died")
        async with self._data.store.lock(box.sid, self._config.command_timeout_s):
            record = await self._data.store.session(box.sid)
            if record is None or record.state in OVER:
                return record
            reason = record.end_reason or reason
            sources = frozenset(sources_of(SessionState.ENDING))
            await self._data.store.move(record, SessionState.ENDING, sources, end_reason=reason)
            record = await self._counted(record)
            return await self._finish(record, SessionState.ENDED, reason, "")

    async def _take_over(self, record: SessionRecord, wait_s: float) -> None:
        """Make it possible to end another node's session here: restore it, unless its patch is stored."""
        if await self._data.history.patch(record.sid) is not None:
            await self._ownership.check_owner_dead(record)
        elif not await self._restoring.restore(record, wait_s=wait_s):
            raise SessionBusy(f"Session {record.sid} is being restored, its host died; waited {wait_s:g} s, ask again.")

    async def lose(self, sid: str, cause: str) -> SessionRecord | None:
        """End a session in which nothing can run any more, with a patch if possible: an agent can cause this state.

        If the container is gone, there is no patch and the verdict is `infra`, for code search too. While the container
        exists, a code search is scored by what the policy has answered so far.

        Raises:
            OwnedElsewhere: the session continues on another node. SessionBusy, InfrastructureError.
        """
        async with self._data.store.lock(sid, self._config.command_timeout_s):
            record = await self._data.store.session(sid)
            if record is None or record.state in OVER:
                return record
            known = await self._data.history.session(sid)
            if known is not None and known.state in OVER:
                return await self._over_already(known)
            if await self._reconciler.reconcile(sid, lost=record.container_id):
                raise StateUnavailable(f"Redis had an older copy of session {sid}, which is put right; ask again")
            if not self._ownership.is_here(record):
                # if that node is alive, the session has another container now
                await self._ownership.check_owner_dead(record)
            if not record.kind.is_rollout or not self._ownership.is_here(record):
                return await self._lose(record, cause)
            if await self._localizes(record) and not await self._is_there(record):
                return await self._lose(record, cause)
            return await self._end_here(record, record.end_reason or "died", cause)

    async def _over_already(self, known: SessionRecord) -> SessionRecord:
        """Tell Redis, which has come back with an older copy of its data, that the session has ended."""
        log.warning("Redis had a session that has ended as live; put right", sid=known.sid)
        await self._data.store.put_session(known)
        await self._starts.release(known.sid)
        return known

    async def _localizes(self, record: SessionRecord) -> bool:
        with suppress(UnknownInstance):
            return (await self._data.instances.by_id(record.instance_id)).localizes
        return False

    async def _is_there(self, record: SessionRecord) -> bool:
        with suppress(SandboxLost):
            await self._runtime.inspector.inspect(record.container_id)
            return True
        return False

    async def _end_here(self, record: SessionRecord, reason: str, died: str = "") -> SessionRecord:
        """End a session of this node; the caller holds its lock. `died`: why nothing can run in it any more, or ""."""
        sources = frozenset(sources_of(SessionState.ENDING))
        began = clock.now()
        if not await self._data.store.move(record, SessionState.ENDING, sources, end_reason=reason):
            await self._patches.check_still_its(record)
        try:
            record, patch = await self._patches.take(await self._counted(record))
        except SandboxLost as e:
            return await self._lose(await self._as_it_is(record), died or e.detail)
        except BaseException:
            self._patches.forget(record.sid)
            raise
        ended = await self._finish(record, SessionState.ENDED, reason, patch.cause or died)
        if traces.is_enabled():
            said: dict[str, traces.Value] = {"sandbox.end_reason": reason}
            error = died or (patch.cause if patch.diff is None else "")
            traces.span(ended, traces.Span("end", began, clock.now(), said, error=error))
        return ended

    async def _counted(self, record: SessionRecord) -> SessionRecord:
        """The record with what egress rules refused in the container. A sleeping session's record has this already."""
        if record.asleep:
            return record
        refused = await self._runtime.refused(record.container_id)
        return replace(record, egress_refused=record.refused_with(refused))

    async def _as_it_is(self, record: SessionRecord) -> SessionRecord:
        """The record after a failed capture, which may have woken a sleeping session. Raises OwnedElsewhere."""
        now = await self._data.store.session(record.sid) if record.asleep else None
        if now is not None and now.node == record.node:
            return now
        await self._patches.check_still_its(record)
        return record

    async def _lose(self, record: SessionRecord, cause: str) -> SessionRecord:
        log.error("sandbox lost", sid=record.sid, instance_id=record.instance_id, cause=cause)
        telemetry.INFRA_ERRORS.labels(SandboxLost.code).inc()
        self._patches.forget(record.sid)
        return await self._finish(record, SessionState.LOST, "lost", cause)

    async def _finish(self, record: SessionRecord, state: SessionState, reason: str, cause: str) -> SessionRecord:
        ended = replace(record, state=state, end_reason=reason, cause=cause, ended_at=clock.now())
        # SQL first: nothing looks again at a session that Redis says has ended
        await self._data.history.save_session(ended)
        await self._data.store.move(
            record,
            state,
            frozenset(sources_of(state)),
            end_reason=reason,
            cause=cause,
            ended_at=ended.ended_at,
            timings_s=ended.timings_s,
            egress_refused=ended.egress_refused,
        )
        await self._starts.release(record.sid)
        self._patches.ended(record.sid)
        traces.rollout(ended)
        task = asyncio.create_task(self._remove(record), name=f"remove-{record.sid}")
        self._removing[record.sid] = task
        task.add_done_callback(lambda _: self._removing.pop(record.sid, None))
        return ended

    async def _remove(self, record: SessionRecord) -> None:
        if record.asleep:
            return
        await self._patches.wait_until_graded(record.sid, within_s=_VERDICT_FIRST_S)
        try:
            await self._runtime.remove(record.container_id)
        except InfrastructureError as e:
            log.warning("container left to the reaper", sid=record.sid, code=e.code, error=e.detail)
