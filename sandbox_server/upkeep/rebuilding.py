"""Restores to Redis, from SQL, sessions that Redis has lost, and actions that it lacks of others."""

from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Role, Runtime
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.sessions.redis_reconciler import RedisReconciler

log = telemetry.logger(__name__)


class Rebuilding:
    """Rebuilds one session whose container was found, or, when the server starts, all sessions of this node."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        kinds: Kinds,
        ownership: Ownership,
        reconciler: RedisReconciler,
        *,
        node: str,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._kinds = kinds
        self._ownership = ownership
        self._reconciler = reconciler
        self._node = node

    async def rebuild(self) -> None:
        """Restore to Redis sessions that only SQL has as live (Redis lost its data); end those without a container."""
        running = {c.sid for c in await self._runtime.list() if c.role is Role.SESSION}
        for state in (SessionState.LIVE, SessionState.ENDING):
            for record in await self._data.history.sessions(state=state, node=self._node, limit=100_000):
                if record.sid in running or record.asleep:
                    if not await self._reconcile(record):
                        await self.remembered(record.sid)
                elif await self._data.store.session(record.sid) is None:
                    await self._close_off(record)

    async def remembered(self, sid: str) -> SessionRecord | None:
        """The session's record, of any node; None: unknown or over. Restores it to Redis if it is this node's."""
        if record := await self._data.store.session(sid):
            return None if record.state in OVER else record
        record = await self._data.history.session(sid)
        if record is None or record.state in OVER:
            return None
        if not self._ownership.is_here(record):
            return record  # its own node writes it back
        # look again: a start that finished between the two lookups is already in Redis; do not overwrite it
        if present := await self._data.store.session(sid):
            return None if present.state in OVER else present
        log.warning("session rebuilt from SQL: Redis had forgotten it", sid=sid)
        await self._kinds[record.kind].rebuild(record)
        return await self._reconciler.write_back(record, None)

    async def _reconcile(self, record: SessionRecord) -> bool:
        """Write the session back to Redis if SQL has more of it; returns whether this was necessary."""
        present = await self._data.store.session(record.sid)
        if present is None or present.state in OVER or not self._ownership.is_here(present):
            return False
        if await self._kinds[record.kind].reconcile(present):
            return True
        if not await self._data.history.actions(record.sid, after=present.actions, limit=1):
            return False
        log.warning("session rebuilt from SQL: Redis lacked its last actions", sid=record.sid)
        await self._kinds[record.kind].rebuild(record)
        await self._reconciler.write_back(record, present)
        return True

    async def _close_off(self, record: SessionRecord) -> None:
        """Record in SQL the end of a session that neither Redis nor the engine has any more."""
        patch = await self._data.history.patch(record.sid)
        over = replace(record, ended_at=clock.now(), end_reason=record.end_reason or "lost")
        if patch is not None:
            over = replace(over, state=SessionState.ENDED, cause=patch.cause)
        else:
            log.error("session lost with its container and Redis", sid=record.sid, instance_id=record.instance_id)
            over = replace(over, state=SessionState.LOST, cause="its container is gone from the engine")
        await self._data.history.save_session(over)
