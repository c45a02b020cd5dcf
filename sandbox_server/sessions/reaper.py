"""Ends what has no living owner: expired sessions, and containers that nobody knows or that are past their deadline.

Works from labels and Redis alone, so also after SIGKILL of a server. What it must not touch: containers whose
start is under way in this process (`ContainerInfo.held`), and sessions whose lock somebody holds (it waits for it).
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

_DEAD_EVERY_S = 30.0  # every node looks after the sessions of dead ones
_TOGETHER = 4  # sessions ended at a time, so that a mass expiry leaves live ones their latency


class Reaper:
    """One pass every SANDBOX_REAPER_PERIOD_S, and one, with recovery, when the server starts."""

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
        """Take over from a server that died: sessions that Redis forgot, ends and gradings left undone."""
        await self._rebuild()
        live = await self._data.store.live(self._node)
        await self._starts.adopt(live)
        for kind in self._kinds.values():
            await kind.save(live)
        await self._data.history.save_sessions(live)  # of some the start may have been acknowledged and not yet written
        gate = asyncio.Semaphore(_TOGETHER)
        halfway = [record for record in live if record.state == SessionState.ENDING]
        await asyncio.gather(*(self._finish(gate, record, record.end_reason) for record in halfway))
        await self.sweep()
        for sid in await self._data.history.ungraded(self._node):
            if record := await self._data.session(sid):
                self._rewards.begin(record)

    async def sweep_all(self) -> None:
        """One pass over what is this node's, and now and then one over what dead nodes left."""
        await self.sweep()
        if time.monotonic() - self._swept_dead_at > _DEAD_EVERY_S:
            await self.sweep_dead()
            self._swept_dead_at = time.monotonic()

    async def sweep(self) -> None:
        """One pass."""
        self._lapsed = await self._runs.lapsed(clear_for_s=self._nodes.clear_for_s())
        # in this order: a session is written down after its container was made, so one without is really gone
        sessions = {record.sid: record for record in await self._data.store.live(self._node)}
        containers = await self._runtime.list()
        left_behind = set()
        mine = sessions.keys() | self._starts.pool.sids | self._restoring.sids
        for sid in {c.sid for c in containers if c.role is Role.SESSION} - mine:
            record = await self._remembered(sid)
            if record is not None and self._ownership.is_here(record):
                sessions[sid] = record
            elif (known := record or await self._data.store.session(sid)) and not self._still_mine(known):
                left_behind.add(sid)  # also when it has ended there by now
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
        """Not a box that is lost: another node may have declared it so while this node was taken for dead."""
        return self._ownership.is_here(record) and (record.kind.is_rollout or record.state != SessionState.LOST)

    def _is_orphan(self, container: ContainerInfo, sessions: dict[str, SessionRecord], left_behind: set[str]) -> bool:
        if container.role is Role.SESSION and container.sid in left_behind:
            return True  # its session went on on another node, while this one was taken for dead
        if container.deadline < clock.today():
            return True
        if container.role is Role.SESSION and container.sid in sessions:
            return sessions[container.sid].container_id != container.container_id
        return not container.held

    async def sweep_dead(self) -> None:
        """End what has run out of the sessions of nodes that died and that nobody asked for since."""
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
        """End the session; with `present` only if there still is a reason to."""
        async with gate:
            try:
                current = await self._data.store.session(record.sid)
                if current is None or current.state in OVER:
                    return
                if present is not None and not self._reason(current, present):
                    return  # it was touched meanwhile
                if reason == "lease" and record.run not in await self._runs.lapsed(
                    clear_for_s=self._nodes.clear_for_s()
                ):
                    return  # its trainer was late, and lives
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
                await self._ending.removed(record.sid)  # a pass leaves nothing behind
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
        if now - record.touched_at > kind.idle_s:
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
        """Put sessions back that SQL knows as live, when Redis came back empty; end those without a container."""
        running = {c.sid for c in await self._runtime.list() if c.role is Role.SESSION}
        for state in (SessionState.LIVE, SessionState.ENDING):
            for record in await self._data.history.sessions(state=state, node=self._node, limit=100_000):
                if record.sid in running:
                    await self._remembered(record.sid)
                elif await self._data.store.session(record.sid) is None:
                    await self._close_off(record)

    async def _remembered(self, sid: str) -> SessionRecord | None:
        """The session if it is not over, whosever; this node's is put back into Redis when only SQL knows it."""
        if record := await self._data.store.session(sid):
            return None if record.state in OVER else record
        record = await self._data.history.session(sid)
        if record is None or record.state in OVER:
            return None
        if not self._ownership.is_here(record):
            return record  # its own node puts it back
        # asked again: a start that ended between the two looks is in Redis first, and must not be overwritten
        if present := await self._data.store.session(sid):
            return None if present.state in OVER else present
        log.warning("session rebuilt from SQL: Redis had forgotten it", sid=sid)
        actions = await self._data.history.actions(sid)
        # its idle time is unknown, and the next action's number must be a new one
        rebuilt = replace(record, touched_at=clock.now(), actions=actions[-1].seq if actions else 0)
        await self._kinds[record.kind].rebuild(record)
        await self._data.store.rebuild(rebuilt, actions)
        return rebuilt

    async def _close_off(self, record: SessionRecord) -> None:
        """Neither Redis nor the engine has it any more: say in SQL how it ended."""
        patch = await self._data.history.patch(record.sid)
        over = replace(record, ended_at=clock.now(), end_reason=record.end_reason or "lost")
        if patch is not None:
            over = replace(over, state=SessionState.ENDED, cause=patch.cause)
        else:
            log.error("session lost with its container and Redis", sid=record.sid, instance_id=record.instance_id)
            over = replace(over, state=SessionState.LOST, cause="its container is gone from the engine")
        await self._data.history.save_session(over)
