"""Restores sessions of dead nodes on this node: in a fresh container, from a checkpoint and by running actions again.

Without a checkpoint that left nothing out, all actions run again. The next observation tells the policy what was done
and which actions ended differently. Background processes are started again; whatever depends on the clock, on chance or
on a network may differ. A session that cannot be restored is lost: verdict `infra`, masked.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import NotForkable, SandboxLost, ServiceError, StateUnavailable, UnknownInstance
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import OVER
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.sessions.checkpointing import Checkpointing, Origin, RestoreResult
from sandbox_server.sessions.config import RestoreConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.replay import how_they_ended
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import GRACE_S, Starts

_DAMAGED = 2  # damaged checkpoints of one restore that are replaced by older ones

log = telemetry.logger(__name__)


class Restoring:
    """Takes over sessions of dead nodes; concurrent requests for a session share one restore."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        data: SessionData,
        starts: Starts,
        checkpointing: Checkpointing,
        ownership: Ownership,
        placement: Placement,
        log: SessionLog,
        config: RestoreConfig,
    ) -> None:
        self._log = log
        self._runtime = runtime
        self._data = data
        self._workspaces = workspaces
        self._starts = starts
        self._checkpointing = checkpointing
        self._ownership = ownership
        self._placement = placement
        self._config = config
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def sids(self) -> frozenset[str]:
        """Sids of the sessions being restored, which do not belong to this node yet."""
        return frozenset(self._under_way)

    async def restore(self, record: SessionRecord, *, wait_s: float) -> bool:
        """Restore the session on this node, unless another live node does; the caller must read its record again.

        Returns False if this is not done within `wait_s` seconds; the restore continues.

        Raises:
            OwnedElsewhere, NodeUnreachable: as `Ownership.check_owner_dead`; or another node is a better place for it.
            SandboxLost: it cannot be restored; the caller ends it. Other ServiceErrors: retry.

        """
        task = self._under_way.get(record.sid)
        if task is None:
            await self._ownership.check_owner_dead(record)
            instance = await self._instance(record)
            await self._placement.settle(instance)
            task = self._under_way.get(record.sid)  # another request may have started it meanwhile
        if task is None:
            task = asyncio.create_task(self._restore(record, instance), name=f"restore-{record.sid}")
            self._under_way[record.sid] = task
            task.add_done_callback(lambda done: self._ended(record.sid, done))
        await asyncio.wait({task}, timeout=wait_s)
        if task.done():
            task.result()
        return task.done()

    async def _instance(self, record: SessionRecord) -> TaskInstance:
        try:
            return await self._data.instances.by_id(record.instance_id)
        except UnknownInstance as e:
            raise SandboxLost(f"its host {record.node} died, and its instance was removed: {e.detail}") from e

    async def close(self) -> None:
        """Cancel the restores in progress; their sessions stay as they were."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, sid: str, task: asyncio.Task[None]) -> None:
        del self._under_way[sid]
        if not task.cancelled() and (error := task.exception()):
            telemetry.RESTORES.labels("failed").inc()
            log.error("session not restored", sid=sid, error=str(error))

    async def _restore(self, lost: SessionRecord, instance: TaskInstance) -> None:
        began = time.monotonic()
        bound_s = self._config.restore_timeout_s
        try:
            async with asyncio.timeout(bound_s), self._data.store.lock(lost.sid, bound_s):
                record = await self._data.store.session(lost.sid)
                if record is None or record.state in OVER or record.node != lost.node:
                    return  # another node was faster, or it has ended
                actions = await self._journal(record)
                async with self._starts.place(record):
                    restored = await self._undamaged(record, instance, actions)
        except NotForkable as error:
            raise SandboxLost(f"its host {lost.node} died, and its state cannot be restored: {error.detail}") from error
        except TimeoutError:
            raise SandboxLost(
                f"its host {lost.node} died, and its actions could not be run again within {bound_s:g} s"
            ) from None
        telemetry.RESTORES.labels("different" if restored.differences else "same").inc()
        telemetry.RESTORE_SECONDS.observe(time.monotonic() - began)
        log.warning(
            "session restored",
            sid=lost.sid,
            instance_id=lost.instance_id,
            former=lost.node,
            actions=len(actions),
            again=restored.again,
            differences=restored.differences,
            seconds=round(time.monotonic() - began, 2),
        )

    async def _journal(self, record: SessionRecord) -> Sequence[ActionRecord]:
        """The acknowledged actions. Raises SandboxLost if sessions are not restored here, or actions are missing."""
        died = f"its host {record.node} died"
        if self._config.restore == "off":
            raise SandboxLost(f"{died}, and sessions are not restored here (SANDBOX_RESTORE=off)")
        actions = await self._data.store.actions(record.sid)
        if len(actions) < record.actions:
            actions = await self._data.history.actions(record.sid)
        if len(actions) < record.actions:
            raise SandboxLost(f"{died}, and only {len(actions)} of its {record.actions} actions are known")
        return actions[: record.actions]

    async def _undamaged(
        self, record: SessionRecord, instance: TaskInstance, actions: Sequence[ActionRecord]
    ) -> RestoreResult:
        """As `_anew`, but uses an older checkpoint if one is damaged, and at last none: then all actions run again."""
        for _ in range(_DAMAGED):
            with suppress(CheckpointDamaged):
                return await self._anew(record, await self._checkpointing.origin(record, instance, actions, whole=True))
        return await self._anew(record, Origin(record, instance, actions, undone=record.undone))

    async def _anew(self, record: SessionRecord, origin: Origin) -> RestoreResult:
        """Rebuild the session in a container of this node."""
        instance = origin.instance
        spec = await self._workspaces.spec(instance)
        ends = datetime.fromtimestamp(record.deadline + GRACE_S, UTC)
        sandbox = await self._runtime.create(replace(spec, sid=record.sid, deadline=ends))
        try:
            restored = await self._checkpointing.restore(record, sandbox, origin)
            taken = replace(
                record,
                node=self._config.node,
                container_id=sandbox.container_id,
                touched_at=clock.now(),
                cwd=restored.cwd or instance.workspace,
                talk_turns=restored.talk_turns,
                restores=record.restores + 1,
                notice=_notice(restored),
                differences=restored.untold,
            )
            if not await self._data.store.adopt(taken, record):
                raise StateUnavailable(
                    f"session {record.sid} went on meanwhile, on its own node or another one; send the request again"
                )
        except BaseException:
            await asyncio.shield(self._give_up(sandbox))
            raise
        self._log.add(taken)
        return restored

    async def _give_up(self, sandbox: Sandbox) -> None:
        try:
            await self._runtime.remove(sandbox.container_id)
        except ServiceError as e:
            log.warning("container left to the reaper", container_id=sandbox.container_id[:12], code=e.code)


def _notice(restored: RestoreResult) -> str:
    done, count, checkpoint = "The sandbox was restored on another one", restored.again, restored.checkpoint
    lacks = f" It does not have: {', '.join(restored.lacks)}." if restored.lacks else ""
    if checkpoint is not None:
        done += f" with the state after action {checkpoint.seq}"
        if not count and not restored.differences:
            return f"[The host of this session's sandbox died. {done}.{lacks}]"
    done += f", by running {count} actions after it again" if checkpoint else f" by running its {count} actions again"
    how = f"{',' if restored.differences else ';'} {how_they_ended(restored.differences)}"
    return f"[The host of this session's sandbox died. {done}{how}. What ran in the background was begun anew.{lacks}]"
