"""Puts back what Redis has forgotten of a session of this node: all of it, its last actions, or its container.

Redis may have been emptied, or may have come back with an older copy of its data: from a backup, from a replica that is
behind, or after its host lost the last second. Then a new action would get the number of an acknowledged one, and an
action that its client repeats would run again. So this server counts the actions that it has acknowledged, and compares
at each turn. If the session fell asleep or woke after that copy, Redis names a container that no longer exists. So SQL
is asked for the present container before the session is ended as lost.
"""

from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.errors import SandboxLost
from sandbox_server.lifecycle import OVER
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sessions.data import SessionData
from sandbox_server.starts.log import SessionLog

log = telemetry.logger(__name__)


class RedisReconciler:
    """Compares Redis with what this server has acknowledged, and with SQL."""

    def __init__(self, runtime: Runtime, data: SessionData, log: SessionLog, *, node: str) -> None:
        self._runtime = runtime
        self._data = data
        self._log = log
        self._node = node

    def is_behind(self, record: SessionRecord) -> bool:
        """Whether Redis, which has this record, lacks actions that this server has acknowledged."""
        return record.node == self._node and record.actions < self._data.store.acknowledged.last(record.sid)

    async def has_another_container(self, record: SessionRecord) -> bool:
        """Whether, by SQL, the session has another container than `record` (from Redis) says, or sleeps.

        False if the engine has the record's container: then SQL is behind, because a killed server could not write.

        Raises:
            CatalogueUnavailable, EngineUnavailable.
        """
        await self._log.drain()
        known = await self._data.history.session(record.sid)
        if known is None or not self._goes_on(known) or known.container_id == record.container_id:
            return False
        try:
            await self._runtime.inspector.inspect(record.container_id)
        except SandboxLost:
            return True
        return False

    async def reconcile(self, sid: str, *, lost: str = "") -> bool:
        """Put back what Redis lacks of the session; returns whether it lacked anything. The caller holds its lock.

        `lost`: a container that cannot be used. If Redis still names it as the session's, Redis may have missed that
        the session slept or woke.

        Raises:
            StateUnavailable, CatalogueUnavailable; with `lost` EngineUnavailable.
        """
        present = await self._data.store.session(sid)
        if present is not None and not self.is_behind(present):
            left = bool(lost) and present.container_id == lost
            if not left or not await self.has_another_container(present):
                return False
        known = await self._data.history.session(sid)
        if known is None or not self._goes_on(known):
            return False
        log.warning("Redis lacked the last actions or the container of a session; put back", sid=sid)
        await self.write_back(known, present)
        return True

    def _goes_on(self, known: SessionRecord) -> bool:
        return known.state not in OVER and known.node == self._node and known.kind.is_rollout

    async def write_back(self, known: SessionRecord, present: SessionRecord | None) -> SessionRecord:
        """Write the session to Redis with all its actions; returns its record there.

        `known`: SQL's record, written at the session's start or its last change of container. `present`: that of Redis.
        """
        store, history, sid = self._data.store, self._data.history, known.sid
        await history.add_actions(store.acknowledged.unwritten(sid))
        actions = await history.actions(sid)
        if present is not None:
            known = replace(known, cwd=present.cwd, talk_turns=present.talk_turns, timings_s=present.timings_s)
        # the idle time is unknown, so it starts again at 0; the next action must get an unused number
        rebuilt = replace(known, touched_at=clock.now(), actions=actions[-1].seq if actions else 0)
        await store.settled(sid, actions[present.actions if present else 0 :])
        await store.rebuild(rebuilt, actions)
        if rebuilt.actions < store.acknowledged.last(sid):
            log.error("acknowledged actions of a session are lost", sid=sid, last=rebuilt.actions)
            store.acknowledged.settle(sid, rebuilt.actions)
        return rebuilt
