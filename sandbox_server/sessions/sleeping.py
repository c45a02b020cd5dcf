"""Sleep: an idle session gives up its container and slot; its next action restores it in another container.

Its state is its last checkpoint. If that is lost, e.g. because a block is damaged, its actions are run again.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.checkpoint import Checkpoint
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import (
    CapacityError,
    NotForkable,
    SandboxDiskFull,
    SandboxLost,
    ServiceError,
    SessionRestoring,
    StateUnavailable,
)
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.scoring.journals import Journals
from sandbox_server.sessions.checkpointing import Checkpointing, Origin, RestoreResult
from sandbox_server.sessions.config import SleepConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.sleep_rounds import SleepRounds
from sandbox_server.starts.starts import Starts

log = telemetry.logger(__name__)

_CHANGED = ("container_id", "touched_at", "cwd", "talk_turns", "notice", "differences")  # by waking
_FREE_WITHIN_S = 0.05  # for the lock of an unused session
_DAMAGED = 3  # damaged checkpoints of one session that are replaced by older ones


class Sleeping:
    """Puts sessions of this node to sleep, and wakes them."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        workspaces: Workspaces,
        starts: Starts,
        checkpointing: Checkpointing,
        log: SessionLog,
        config: SleepConfig,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._workspaces = workspaces
        self._starts = starts
        self._checkpointing = checkpointing
        self._log = log
        self._config = config
        self._journals = Journals(data.store, data.history)
        self._rounds = SleepRounds("session", self._sleep, idle_s=config.hibernate_s)

    async def look(self) -> None:
        """Put all sessions to sleep that were idle for SANDBOX_HIBERNATE_S, a few at a time."""
        sessions = await self._data.store.live(self._config.node)
        self._checkpointing.pinned.clear()
        self._checkpointing.pinned.update(record.sid for record in sessions if record.asleep)
        await self._rounds.round((one.sid for one in sessions), [one.sid for one in sessions if self._idle(one)])

    def _idle(self, record: SessionRecord) -> bool:
        if not record.kind.is_rollout or record.state != SessionState.LIVE or record.asleep:
            return False
        return record.node == self._config.node and clock.now() - record.touched_at > self._config.hibernate_s

    async def _sleep(self, sid: str) -> bool:
        store = self._data.store
        async with store.lock(sid, _FREE_WITHIN_S):
            record = await store.session(sid)
            if record is None or not self._idle(record) or await store.interrupted(sid):
                return False
            instance = await self._data.instances.by_id(record.instance_id)
            sandbox = await self._runtime.attach(record.container_id)
            self._checkpointing.pinned.add(sid)  # if it does not sleep, the next round of `look` undoes this
            if not await self._let_go(record, await self._checkpointing.take(record, sandbox, instance)):
                return False
            await self._starts.release(sid)
        log.info("session sleeps", sid=sid, actions=record.actions)
        await self._remove(record.container_id)
        return True

    async def _let_go(self, record: SessionRecord, checkpoint: Checkpoint) -> bool:
        """Record in SQL and Redis that the session has no container any more. False: the session keeps it."""
        if checkpoint.left_out:
            log.info("session does not sleep", sid=record.sid, why=f"it has {', '.join(checkpoint.left_out)}")
            return False
        refused = record.refused_with(await self._runtime.refused(record.container_id))
        # SQL first: if Redis forgets the session, SQL must know that it has no container
        await self._data.history.save_session(replace(record, container_id="", egress_refused=refused))
        same = frozenset({record.state})
        return await self._data.store.move(record, record.state, same, container_id="", egress_refused=refused)

    async def wake(self, record: SessionRecord, instance: TaskInstance) -> SessionRecord:
        """Restore a sleeping session in a container of this node; return its record. The caller holds the session's
        lock.

        Raises:
            SessionRestoring: no room for it; nothing happened. SandboxLost: its state cannot be restored.
            EngineUnavailable, ImageUnavailable, StateUnavailable, CatalogueUnavailable: it still sleeps.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._config.wake_timeout_s), self._starts.place(record):
                awake = await self._awake(record, instance)
        except (TimeoutError, CapacityError, SandboxDiskFull) as error:
            raise SessionRestoring(
                "The sandbox of this session sleeps, and its host has no room to wake it now, so this action did not"
                " run. Send it again."
            ) from error
        telemetry.WAKE_SECONDS.observe(time.monotonic() - began)
        log.info("session woke", sid=record.sid, seconds=round(time.monotonic() - began, 3))
        self._log.add(awake)
        return awake

    async def _awake(self, record: SessionRecord, instance: TaskInstance) -> SessionRecord:
        sandbox, restored = await self._restored(record, instance)
        awake = replace(
            record,
            container_id=sandbox.container_id,
            touched_at=clock.now(),
            cwd=restored.cwd or record.cwd,
            talk_turns=restored.talk_turns,
            # the checkpoint has the notice that was pending when the session fell asleep
            notice=restored.notice("This sandbox was asleep") or record.notice,
            differences=restored.untold or record.differences,
        )
        changes = {name: getattr(awake, name) for name in _CHANGED}
        try:
            if not await self._data.store.move(record, record.state, frozenset({record.state}), **changes):
                raise StateUnavailable(f"session {record.sid} ended or moved meanwhile; look at it")
        except BaseException:
            await asyncio.shield(self._remove(sandbox.container_id))
            raise
        return awake

    async def _restored(self, record: SessionRecord, instance: TaskInstance) -> tuple[Sandbox, RestoreResult]:
        """Create a container with the session's state."""
        actions = await self._journals.complete(record)
        spec = await self._workspaces.spec(instance)
        for attempt in range(_DAMAGED + 1):
            try:
                origin = await self._checkpointing.origin(record, instance, actions[: record.actions])
            except NotForkable as error:
                raise SandboxLost(f"it was asleep, and its state cannot be restored: {error.detail}") from error
            if attempt == _DAMAGED:  # all actions are run again
                origin = Origin(record, instance, actions[: record.actions], undone=record.undone)
            with suppress(CheckpointDamaged):
                async with self._starts.container(spec, record) as sandbox:
                    return sandbox, await self._restore(record, sandbox, origin)
        raise SandboxLost("it was asleep, and its checkpoints are damaged")

    async def _restore(self, record: SessionRecord, sandbox: Sandbox, origin: Origin) -> RestoreResult:
        try:
            return await self._checkpointing.restore(record, sandbox, origin)
        except NotForkable as error:
            raise SandboxLost(f"it was asleep, and its state cannot be restored: {error.detail}") from error

    async def _remove(self, container_id: str) -> None:
        with suppress(ServiceError):  # otherwise the reaper finds it
            await self._runtime.remove(container_id)
