"""Ends sessions: takes the patch, writes the record, removes the container; a crash may interrupt it at any point.

The grading starts as soon as the patch is stored. Its container is created when the end begins.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from sandbox_server import clock, telemetry, traces
from sandbox_server.errors import (
    CatalogueUnavailable,
    InfrastructureError,
    OwnedElsewhere,
    SandboxLost,
    ServiceError,
    SessionBusy,
    StateUnavailable,
    UnknownInstance,
)
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import OVER, SessionState, sources_of
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.config import EndConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.patches import Captures, none
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.sessions.starts import Starts

log = telemetry.logger(__name__)

_HURRY_EVERY_S = 0.5  # interrupt repeatedly: several actions may be ahead of the end in the session's lock
_CLOSE_S = 30.0  # for pending removals when the server stops; the next server's reaper removes the rest


class Ending:
    """Ends sessions of this node. Ending a session is idempotent."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        captures: Captures,
        data: SessionData,
        starts: Starts,
        rewards: Rewards,
        ownership: Ownership,
        restoring: Restoring,
        sleeping: Sleeping,
        config: EndConfig,
        interrupt: Callable[[str], None],
    ) -> None:
        """`interrupt(sid)` ends the running action of a session of this node."""
        self._interrupt = interrupt
        self._ownership = ownership
        self._restoring = restoring
        self._sleeping = sleeping
        self._runtime = runtime
        self._data = data
        self._workspaces = workspaces
        self._captures = captures
        self._starts = starts
        self._rewards = rewards
        self._config = config
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._began: dict[str, float] = {}  # sid -> start of its end; a restart of the server resets it

    async def removed(self, sid: str) -> None:
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
            return await self._end_here(record, record.end_reason or reason)

    async def _patch_in_time(self, record: SessionRecord) -> tuple[SessionRecord, PatchRecord]:
        """As `_patch`, but the session is lost past SANDBOX_ENDING_MAX_S, earlier attempts included.

        Then the engine or the unchanged tree failed too: the agent's files cannot take that long, because `Captures`
        gives up on them sooner. An outage of SQL or Redis does not count.
        """
        most_s = self._config.ending_max_s
        began = self._began.setdefault(record.sid, time.monotonic())
        left_s = max(self._config.postprocess_timeout_s, began + most_s - time.monotonic())
        try:
            async with asyncio.timeout(left_s) as bound:
                return await self._patch(record)
        except TimeoutError:
            if not bound.expired():
                raise
            raise SandboxLost(f"its end took longer than {most_s:g} s (SANDBOX_ENDING_MAX_S)") from None
        except (CatalogueUnavailable, StateUnavailable):
            self._began.pop(record.sid, None)
            raise
        except InfrastructureError as e:
            if time.monotonic() - began < most_s or isinstance(e, SandboxLost):
                raise
            raise SandboxLost(
                f"its end failed repeatedly for longer than {most_s:g} s (SANDBOX_ENDING_MAX_S), at last: {e.detail}"
            ) from e

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
            await self._ownership.nobodys(box)
            return await self.lose(box.sid, f"its host {box.node} died")
        async with self._data.store.lock(box.sid, self._config.command_timeout_s):
            record = await self._data.store.session(box.sid)
            if record is None or record.state in OVER:
                return record
            reason = record.end_reason or reason
            sources = frozenset(sources_of(SessionState.ENDING))
            await self._data.store.move(box.sid, SessionState.ENDING, sources, end_reason=reason)
            return await self._finish(record, SessionState.ENDED, reason, "")

    async def _take_over(self, record: SessionRecord, wait_s: float) -> None:
        """Make it possible to end another node's session here: restore it, unless its patch is stored."""
        if await self._data.history.patch(record.sid) is not None:
            await self._ownership.nobodys(record)
        elif not await self._restoring.restore(record, wait_s=wait_s):
            raise SessionBusy(f"Session {record.sid} is being restored, its host died; waited {wait_s:g} s, ask again.")

    async def lose(self, sid: str, cause: str) -> SessionRecord | None:
        """End a session in which nothing can run any more, with a patch if possible: an agent can cause this state.

        Without a container there is no patch, and the verdict is `infra`. The same holds for code search: no patch is
        taken of its tree, and the policy could not finish.

        Raises:
            OwnedElsewhere: the session continues on another node. SessionBusy, InfrastructureError.
        """
        async with self._data.store.lock(sid, self._config.command_timeout_s):
            record = await self._data.store.session(sid)
            if record is None or record.state in OVER:
                return record
            if not self._ownership.is_here(record):
                await self._ownership.nobodys(record)  # if that node is alive, the session has another container now
            if not record.kind.is_rollout or not self._ownership.is_here(record) or await self._localizes(record):
                return await self._lose(record, cause)
            return await self._end_here(record, record.end_reason or "died", cause)

    async def _localizes(self, record: SessionRecord) -> bool:
        with suppress(UnknownInstance):
            return (await self._data.instances.by_id(record.instance_id)).localizes
        return False

    async def _end_here(self, record: SessionRecord, reason: str, died: str = "") -> SessionRecord:
        """End a session of this node; the caller holds its lock. `died`: why nothing can run in it any more, or ""."""
        sources = frozenset(sources_of(SessionState.ENDING))
        began = clock.now()
        await self._data.store.move(record.sid, SessionState.ENDING, sources, end_reason=reason)
        try:
            record, patch = await self._patch_in_time(record)
        except SandboxLost as e:
            return await self._lose(record, died or e.detail)
        except BaseException:
            self._rewards.forget(record.sid)
            raise
        ended = await self._finish(record, SessionState.ENDED, reason, patch.cause or died)
        if traces.on():
            said: dict[str, traces.Value] = {"sandbox.end_reason": reason}
            traces.span(ended, traces.Span("end", began, clock.now(), said, error=ended.cause))
        return ended

    async def _patch(self, record: SessionRecord) -> tuple[SessionRecord, PatchRecord]:
        """Store the session's patch in SQL and begin its grading; returns the record with the time this took."""
        if stored := await self._data.history.patch(record.sid):
            return record, stored  # a server died between storing the patch and removing the container
        if record.differences:
            # the patch would be of a state that the policy never saw, so it must not earn a reward
            raise SandboxLost(
                f"its host died, and {record.differences} of its actions ended differently when they were run again,"
                " which no observation could tell any more"
            )
        began = time.monotonic()
        record = await self._woken(record)
        captured = await self._capture(record)
        # if this node was declared dead, the session continued elsewhere: its patch there must not be preempted
        now = await self._data.store.session(record.sid)
        if now is not None and now.container_id != record.container_id:
            raise OwnedElsewhere(now.node)
        patch = await self._data.history.save_patch(captured)
        record = replace(record, timings_s={**record.timings_s, "end_patch": time.monotonic() - began})
        self._rewards.begin(record, patch)
        return record, patch

    async def _woken(self, record: SessionRecord) -> SessionRecord:
        """The session, in a container if a patch is taken from one. Its state is `ending` by now."""
        if not record.asleep:
            return record
        with suppress(UnknownInstance):  # told by `_capture`
            instance = await self._data.instances.by_id(record.instance_id)
            if not instance.localizes:
                return await self._sleeping.wake(replace(record, state=SessionState.ENDING), instance)
        return record

    async def _capture(self, record: SessionRecord) -> PatchRecord:
        try:
            instance = await self._data.instances.by_id(record.instance_id)
        except UnknownInstance as e:
            raise SandboxLost(f"its instance was removed from the catalogue: {e.detail}") from e
        if instance.localizes:
            return none(record)
        self._rewards.expect(instance, record.sid)
        base = ""
        # the base commit is only a note in the receipt; a failure to get it must not cost the patch
        with suppress(ServiceError):
            base = (await self._workspaces.prepared(instance)).base_commit
        with telemetry.ACTION_SECONDS.labels("patch").time():
            return await self._captures.take(record, instance, base_commit=base or instance.base_commit)

    async def _lose(self, record: SessionRecord, cause: str) -> SessionRecord:
        log.error("sandbox lost", sid=record.sid, instance_id=record.instance_id, cause=cause)
        telemetry.INFRA_ERRORS.labels(SandboxLost.code).inc()
        self._rewards.forget(record.sid)
        return await self._finish(record, SessionState.LOST, "lost", cause)

    async def _finish(self, record: SessionRecord, state: SessionState, reason: str, cause: str) -> SessionRecord:
        ended = replace(record, state=state, end_reason=reason, cause=cause, ended_at=clock.now())
        # SQL first: nothing looks again at a session that Redis says has ended
        await self._data.history.save_session(ended)
        await self._data.store.move(
            record.sid,
            state,
            frozenset(sources_of(state)),
            end_reason=reason,
            cause=cause,
            ended_at=ended.ended_at,
            timings_s=ended.timings_s,
        )
        await self._starts.release(record.sid)
        self._began.pop(record.sid, None)
        traces.rollout(ended)
        task = asyncio.create_task(self._remove(record), name=f"remove-{record.sid}")
        self._removing[record.sid] = task
        task.add_done_callback(lambda _: self._removing.pop(record.sid, None))
        return ended

    async def _remove(self, record: SessionRecord) -> None:
        if record.asleep:
            return
        try:
            await self._runtime.remove(record.container_id)
        except InfrastructureError as e:
            log.warning("container left to the reaper", sid=record.sid, code=e.code, error=e.detail)
