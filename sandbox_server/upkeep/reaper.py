"""Ends expired sessions, and removes containers that are past their deadline or belong to no session.

Works from labels and Redis alone, so it also works after SIGKILL of a server. It must not touch containers that this
process is starting or has parked (`ContainerInfo.held`), nor sessions whose lock is held (it waits for the lock).
"""

import asyncio
from contextlib import suppress

from sandbox_server import clock, telemetry
from sandbox_server.errors import ServiceError, SessionBusy
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerInfo, Role, Runtime
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.sessions.redis_reconciler import RedisReconciler
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.starts.starts import Starts
from sandbox_server.upkeep.expiry import TOGETHER, Expiry
from sandbox_server.upkeep.rebuilding import Rebuilding

log = telemetry.logger(__name__)

_FREE_WITHIN_S = 0.05  # for the lock of a session that nobody uses


class Reaper:
    """Makes one pass every SANDBOX_REAPER_PERIOD_S, and one when the server starts."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        kinds: Kinds,
        ownership: Ownership,
        restoring: Restoring,
        starts: Starts,
        expiry: Expiry,
        rebuilding: Rebuilding,
        reconciler: RedisReconciler,
        *,
        node: str,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._kinds = kinds
        self._ownership = ownership
        self._restoring = restoring
        self._starts = starts
        self._expiry = expiry
        self._rebuilding = rebuilding
        self._reconciler = reconciler
        self._node = node

    async def sweep_all(self) -> None:
        """One pass over this node's sessions, and one over those of dead nodes if it is time."""
        await self.sweep()
        await self._expiry.sweep_dead()

    async def sweep(self) -> None:
        """One pass over this node's sessions and containers."""
        await self._expiry.read_leases()
        # sessions first: a record is written after its container was made, so one without a container is really lost
        sessions = {record.sid: record for record in await self._data.store.live(self._node)}
        containers = await self._runtime.list()
        for former in filter(self._reconciler.is_behind, list(sessions.values())):
            sessions[former.sid] = await self._reconcile(former)
        left_behind = set()
        mine = sessions.keys() | self._starts.pool.sids | self._restoring.sids
        for sid in {c.sid for c in containers if c.role is Role.SESSION} - mine:
            record = await self._rebuilding.remembered(sid)
            if record is not None and self._ownership.is_here(record):
                sessions[sid] = record
            elif (known := record or await self._data.store.session(sid)) and not self._still_mine(known):
                left_behind.add(sid)  # also if the session has already ended on the other node
        for sid in self._starts.sids - sessions.keys():
            if (record := await self._data.store.session(sid)) and (
                record.state in OVER or not self._ownership.is_here(record)
            ):
                await self._starts.release(sid)
                self._data.store.acknowledged.forget(sid)
        present = {c.container_id for c in containers}
        gate = asyncio.Semaphore(TOGETHER)
        due = [self._expiry.end_if_due(gate, record, present) for record in sessions.values()]
        due += [
            self._container(gate, c, replaced=c.sid in sessions and c.sid not in left_behind)
            for c in containers
            if self._is_orphan(c, sessions, left_behind)
        ]
        await asyncio.gather(*due)
        await self._runtime.remove_leftovers()
        for kind in self._kinds.values():
            await kind.follow(containers, list(sessions.values()))

    async def _reconcile(self, record: SessionRecord) -> SessionRecord:
        """Put back what Redis lacks of the session, and return its record; its idle time is checked afterwards."""
        with suppress(SessionBusy):  # the request that holds the lock finds what is lacking too
            async with self._data.store.lock(record.sid, _FREE_WITHIN_S):
                await self._reconciler.reconcile(record.sid)
        return await self._data.store.session(record.sid) or record

    def _still_mine(self, record: SessionRecord) -> bool:
        """Whether the session is this node's and not a lost box, which another node may have declared lost."""
        return self._ownership.is_here(record) and (record.kind.is_rollout or record.state != SessionState.LOST)

    async def _remove_replaced(self, container: ContainerInfo) -> bool:
        """Remove the container unless its session now uses it. Raises SessionBusy: a request holds the lock."""
        former = await self._data.store.session(container.sid)
        if former is not None and await self._kinds[former.kind].reconcile(former):
            return False
        async with self._data.store.lock(container.sid, _FREE_WITHIN_S):
            now = await self._data.store.session(container.sid)
            if now is not None and now.container_id == container.container_id:
                return False
            await self._runtime.remove(container.container_id)
            return True

    def _is_orphan(self, container: ContainerInfo, sessions: dict[str, SessionRecord], left_behind: set[str]) -> bool:
        if container.role is Role.SESSION and container.sid in left_behind:
            return True  # its session continued on another node, which considered this node dead
        if container.deadline < clock.today():
            return True
        if container.role is Role.SESSION and container.sid in sessions:
            return sessions[container.sid].container_id != container.container_id
        return not container.held

    async def _container(self, gate: asyncio.Semaphore, container: ContainerInfo, *, replaced: bool) -> None:
        """Remove an orphan. `replaced`: its session had another container when it was looked up."""
        async with gate:
            try:
                if not replaced:
                    await self._runtime.remove(container.container_id)
                elif not await self._remove_replaced(container):
                    return
            except SessionBusy:
                return  # its session may be about to use it (a rollback); the next pass looks again
            except ServiceError as e:
                log.warning("orphan not removed", container_id=container.container_id, code=e.code, error=e.detail)
                return
            telemetry.REAPED.labels(f"container_{container.role.value}").inc()
            log.info("orphan removed", container_id=container.container_id[:12], role=container.role, sid=container.sid)
