"""Ends expired sessions, and removes containers that are past their deadline or belong to no session.

Works from labels and Redis alone, so it also works after SIGKILL of a server. It must not touch containers that this
process is starting or has parked (`ContainerInfo.held`), nor sessions whose lock is held (it waits for the lock).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from sandbox_server import clock, telemetry
from sandbox_server.errors import OwnedElsewhere, ServiceError
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerInfo, Role, Runtime
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.starts import Starts
from sandbox_server.state.nodes import Liveness, Nodes
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)

_DEAD_EVERY_S = 30.0  # between passes over dead nodes' sessions; every node does them
_TOGETHER = 4  # sessions ended at a time, so that a mass expiry does not slow live ones


class Reaper:
    """Makes one pass every SANDBOX_REAPER_PERIOD_S, and a recovery with a pass when the server starts."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        kinds: Kinds,
        nodes: Nodes,
        runs: RunState,
        ownership: Ownership,
        restoring: Restoring,
        starts: Starts,
        ending: Ending,
        rewards: Rewards,
        end: Callable[[str, str], Awaitable[SessionRecord | None]],
        *,
        node: str,
        postprocess_timeout_s: float,
    ) -> None:
        """`end(sid, reason)` ends a session and begins its grading."""
        self._runtime = runtime
        self._data = data
        self._kinds = kinds
        self._nodes = nodes
        self._runs = runs
        self._lapsed: Mapping[str, float] = {}
        self._ownership = ownership
        self._restoring = restoring
        self._starts = starts
        self._ending = ending
        self._rewards = rewards
        self._swept_dead_at = time.monotonic()
        self._node = node
        self._postprocess_timeout_s = postprocess_timeout_s
        self._end = end

    async def recover(self) -> None:
        """Recover from a server that died: sessions missing in Redis, unfinished ends and gradings."""
        await self._rebuild()
        live = await self._data.store.live(self._node)
        await self._starts.adopt(live)
        for kind in self._kinds.values():
            await kind.save(live)
        await self._data.history.save_sessions(live)  # some starts may have been acknowledged before they were in SQL
        gate = asyncio.Semaphore(_TOGETHER)
        halfway = [record for record in live if record.state == SessionState.ENDING]
        await asyncio.gather(*(self._finish(gate, record, record.end_reason) for record in halfway))
        await self.sweep()
        for sid in await self._data.history.ungraded(self._node):
            if record := await self._data.session(sid):
                self._rewards.begin(record)

    async def sweep_all(self) -> None:
        """One pass over this node's sessions; every `_DEAD_EVERY_S` also one over those of dead nodes."""
        await self.sweep()
        if time.monotonic() - self._swept_dead_at > _DEAD_EVERY_S:
            await self.sweep_dead()
            self._swept_dead_at = time.monotonic()

    async def sweep(self) -> None:
        """One pass over this node's sessions and containers."""
        self._lapsed = await self._runs.lapsed(clear_for_s=self._nodes.clear_for_s())
        # sessions first: a record is written after its container was made, so one without a container is really lost
        sessions = {record.sid: record for record in await self._data.store.live(self._node)}
        containers = await self._runtime.list()
        left_behind = set()
        mine = sessions.keys() | self._starts.pool.sids | self._restoring.sids
        for sid in {c.sid for c in containers if c.role is Role.SESSION} - mine:
            record = await self._remembered(sid)
            if record is not None and self._ownership.is_here(record):
                sessions[sid] = record
            elif (known := record or await self._data.store.session(sid)) and not self._still_mine(known):
                left_behind.add(sid)  # even if it has ended there by now
        for sid in self._starts.sids - sessions.keys():
            if (record := await self._data.store.session(sid)) and (
                record.state in OVER or not self._ownership.is_here(record)
            ):
                await self._starts.release(sid)
        present = {c.container_id for c in containers}
        gate = asyncio.Semaphore(_TOGETHER)
        due = [self._session(gate, record, present) for record in sessions.values()]
        due += [self._container(gate, c) for c in containers if self._is_orphan(c, sessions, left_behind)]
        await asyncio.gather(*due)
        for kind in self._kinds.values():
            await kind.follow(containers, list(sessions.values()))

    def _still_mine(self, record: SessionRecord) -> bool:
        """Whether the session is this node's and not a lost box, which another node may have declared lost."""
        return self._ownership.is_here(record) and (record.kind.is_rollout or record.state != SessionState.LOST)

    def _is_orphan(self, container: ContainerInfo, sessions: dict[str, SessionRecord], left_behind: set[str]) -> bool:
        if container.role is Role.SESSION and container.sid in left_behind:
            return True  # its session continued on another node, which took this one for dead
        if container.deadline < clock.today():
            return True
        if container.role is Role.SESSION and container.sid in sessions:
            return sessions[container.sid].container_id != container.container_id
        return not container.held

    async def sweep_dead(self) -> None:
        """End dead nodes' expired sessions and all their boxes; requests for a session restore it elsewhere."""
        gate = asyncio.Semaphore(_TOGETHER)
        for node in await self._data.store.other_nodes():
            if await self._nodes.liveness(node) is not Liveness.DEAD:
                continue
            records = await self._data.store.live(node)
            if not records:
                await self._nodes.forget(node)
            now = clock.now()
            due = [(record, self._run_out(record, now) if record.kind.is_rollout else "lost") for record in records]
            await asyncio.gather(*(self._finish(gate, record, reason) for record, reason in due if reason))

    async def _session(self, gate: asyncio.Semaphore, record: SessionRecord, present: set[str]) -> None:
        reason = self._reason(record, present)
        if not reason:
            return
        await self._finish(gate, record, reason, present)

    async def _finish(
        self, gate: asyncio.Semaphore, record: SessionRecord, reason: str, present: set[str] | None = None
    ) -> None:
        """End the session; if `present` is given, only if a reason to end it still holds."""
        async with gate:
            try:
                current = await self._data.store.session(record.sid)
                if current is None or current.state in OVER:
                    return
                if present is not None and not self._reason(current, present):
                    return  # a request came meanwhile
                if reason == "lease" and record.run not in await self._runs.lapsed(
                    clear_for_s=self._nodes.clear_for_s()
                ):
                    return  # its trainer renewed the lease late
                kind = self._kinds[record.kind]
                if reason == kind.at_deadline and await kind.pause_at_end(record):
                    return
                telemetry.REAPED.labels(reason).inc()
                log.info("session ended", sid=record.sid, instance_id=record.instance_id, reason=reason)
                if reason == "lost":
                    here = self._ownership.is_here(record)
                    cause = "its container is gone from the engine" if here else f"its host {record.node} died"
                    await self._ending.lose(record.sid, cause)
                else:
                    await self._end(record.sid, reason)
                await self._ending.removed(record.sid)  # removals finish within the pass
            except OwnedElsewhere:
                log.info("session went on elsewhere", sid=record.sid)
            except ServiceError as e:
                log.warning("session not ended; the next pass tries again", sid=record.sid, code=e.code, error=e.detail)

    def _reason(self, record: SessionRecord, present: set[str]) -> str:
        now = clock.now()
        if record.container_id not in present:
            return "lost"
        if record.state == SessionState.ENDING and now - record.touched_at > self._postprocess_timeout_s:
            return record.end_reason or "postprocess"
        return self._run_out(record, now)

    def _run_out(self, record: SessionRecord, now: float) -> str:
        kind = self._kinds[record.kind]
        if now > record.deadline:
            return kind.at_deadline
        if record.created_at < self._lapsed.get(record.run, 0.0):
            return "lease"
        if kind.idle(record, now):
            return "idle"
        return ""

    async def _container(self, gate: asyncio.Semaphore, container: ContainerInfo) -> None:
        async with gate:
            try:
                await self._runtime.remove(container.container_id)
            except ServiceError as e:
                log.warning("orphan not removed", container_id=container.container_id, code=e.code, error=e.detail)
                return
            telemetry.REAPED.labels(f"container_{container.role.value}").inc()
            log.info("orphan removed", container_id=container.container_id[:12], role=container.role, sid=container.sid)

    async def _rebuild(self) -> None:
        """Restore to Redis sessions that only SQL has as live (Redis lost its data); end those without a container."""
        running = {c.sid for c in await self._runtime.list() if c.role is Role.SESSION}
        for state in (SessionState.LIVE, SessionState.ENDING):
            for record in await self._data.history.sessions(state=state, node=self._node, limit=100_000):
                if record.sid in running:
                    await self._remembered(record.sid)
                elif await self._data.store.session(record.sid) is None:
                    await self._close_off(record)

    async def _remembered(self, sid: str) -> SessionRecord | None:
        """The session, of any node, unless it is over. Writes this node's back to Redis if only SQL has it."""
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
        actions = await self._data.history.actions(sid)
        # its idle time is unknown, so it starts anew; the next action must get an unused number
        rebuilt = replace(record, touched_at=clock.now(), actions=actions[-1].seq if actions else 0)
        await self._kinds[record.kind].rebuild(record)
        await self._data.store.rebuild(rebuilt, actions)
        return rebuilt

    async def _close_off(self, record: SessionRecord) -> None:
        """Write to SQL how a session ended that neither Redis nor the engine has any more."""
        patch = await self._data.history.patch(record.sid)
        over = replace(record, ended_at=clock.now(), end_reason=record.end_reason or "lost")
        if patch is not None:
            over = replace(over, state=SessionState.ENDED, cause=patch.cause)
        else:
            log.error("session lost with its container and Redis", sid=record.sid, instance_id=record.instance_id)
            over = replace(over, state=SessionState.LOST, cause="its container is gone from the engine")
        await self._data.history.save_session(over)
