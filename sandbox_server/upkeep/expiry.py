"""Ends sessions without a request: past their deadline, idle, without their run's lease, or without their container."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from sandbox_server import clock, telemetry
from sandbox_server.errors import OwnedElsewhere, ServiceError
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.records import SessionRecord
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.state.nodes import Liveness, Nodes
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)

_DEAD_EVERY_S = 30.0  # between passes over dead nodes' sessions; every node does them
TOGETHER = 4
"""Sessions ended at a time, so that a mass expiry does not slow live ones."""


class Expiry:
    """Ends the sessions that are due: of this node one at a time (`end_if_due`), of dead nodes all (`sweep_dead`)."""

    def __init__(
        self,
        data: SessionData,
        kinds: Kinds,
        nodes: Nodes,
        runs: RunState,
        ownership: Ownership,
        ending: SessionEnder,
        end: Callable[[str, str], Awaitable[SessionRecord | None]],
        *,
        postprocess_timeout_s: float,
    ) -> None:
        """`end(sid, reason)` ends a session and begins its grading."""
        self._data = data
        self._kinds = kinds
        self._nodes = nodes
        self._runs = runs
        self._ownership = ownership
        self._ending = ending
        self._end = end
        self._postprocess_timeout_s = postprocess_timeout_s
        self._lapsed: Mapping[str, float] = {}
        self._swept_dead_at = time.monotonic()

    async def read_leases(self) -> None:
        """Read from Redis which runs' leases have expired; `end_if_due` uses the last answer."""
        self._lapsed = await self._runs.expired_leases(healthy_for_s=self._nodes.healthy_for_s())

    async def end_if_due(self, gate: asyncio.Semaphore, record: SessionRecord, present: set[str]) -> None:
        """End a session of this node if there is a reason; `present`: ids of the containers that the engine has."""
        if reason := self._reason(record, present):
            await self.finish(gate, record, reason, present)

    async def sweep_dead(self) -> None:
        """End dead nodes' expired sessions and all their boxes; at most every `_DEAD_EVERY_S`.

        Requests for a session that has not expired restore it elsewhere.
        """
        if time.monotonic() - self._swept_dead_at <= _DEAD_EVERY_S:
            return
        gate = asyncio.Semaphore(TOGETHER)
        for node in await self._data.store.other_nodes():
            if await self._nodes.liveness(node) is not Liveness.DEAD:
                continue
            records = await self._data.store.live(node)
            if not records:
                await self._nodes.forget(node)
            now = clock.now()
            due = [(record, self._run_out(record, now) if record.kind.is_rollout else "lost") for record in records]
            await asyncio.gather(*(self.finish(gate, record, reason) for record, reason in due if reason))
        self._swept_dead_at = time.monotonic()

    async def finish(
        self, gate: asyncio.Semaphore, record: SessionRecord, reason: str, present: set[str] | None = None
    ) -> None:
        """End the session; if `present` is given, only if a reason to end it still holds."""
        async with gate:
            try:
                current = await self._data.store.session(record.sid)
                if current is None or current.state in OVER:
                    return
                if present is not None and current.container_id != record.container_id:
                    return  # it fell asleep or woke after the look at the engine; the next pass looks again
                if present is not None and not self._reason(current, present):
                    return  # a request came meanwhile
                if reason == "lease" and record.run not in await self._runs.expired_leases(
                    healthy_for_s=self._nodes.healthy_for_s()
                ):
                    return  # its trainer renewed the lease late
                kind = self._kinds[record.kind]
                if await kind.reconcile(current):
                    return  # the next pass looks at the corrected record
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
                await self._ending.wait_until_removed(record.sid)  # removals finish within the pass
            except OwnedElsewhere:
                log.info("session went on elsewhere", sid=record.sid)
            except ServiceError as e:
                log.warning("session not ended; the next pass tries again", sid=record.sid, code=e.code, error=e.detail)

    def _reason(self, record: SessionRecord, present: set[str]) -> str:
        now = clock.now()
        if not record.asleep and record.container_id not in present:
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
