"""Hibernation: an idle box gives up its container and slot, and the next request restores it in another container.

Only boxes in which nothing runs hibernate: then their files are their whole state. A box that is used meanwhile keeps
its container. Clients see a hibernating box as running.
"""

from dataclasses import dataclass

from sandbox_server import clock, telemetry
from sandbox_server.boxes.processes import Processes
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.use import BoxUse
from sandbox_server.boxes.view import BoxView
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import SessionKind, SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sessions.data import SessionData
from sandbox_server.starts.sleep_rounds import SleepRounds
from sandbox_server.state.boxes import BoxFacts

log = telemetry.logger(__name__)

_FREE_WITHIN_S = 0.05  # for the lock of an unused box


@dataclass(frozen=True, slots=True)
class HibernationConfig:
    """Which boxes hibernate, and when."""

    node: str
    idle_s: float
    """Seconds without use after which a box sleeps (SANDBOX_HIBERNATE_S); 0: never."""


class BoxHibernation:
    """Hibernates boxes of this node."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        facts: BoxFacts,
        sleep: BoxSleep,
        processes: Processes,
        use: BoxUse,
        config: HibernationConfig,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._facts = facts
        self._sleep = sleep
        self._processes = processes
        self._use = use
        self._config = config
        self._rounds = SleepRounds("box", self._sleeps, idle_s=config.idle_s)

    async def look(self) -> None:
        """Hibernate all boxes that were idle for SANDBOX_HIBERNATE_S, a few at a time."""
        boxes = [one for one in await self._data.store.live(self._config.node) if one.kind is SessionKind.BOX]
        await self._rounds.round((one.sid for one in boxes), [one.sid for one in boxes if self._idle(one)])

    def _idle(self, record: SessionRecord) -> bool:
        if record.state != SessionState.LIVE or record.asleep or self._processes.listed(record.sid):
            return False
        return self._use.idle_for(record.sid, record.touched_at, clock.now()) > self._config.idle_s

    async def _sleeps(self, sid: str) -> bool:
        async with self._data.store.lock(sid, _FREE_WITHIN_S):
            return await self._sleeps_unused(sid)

    async def _sleeps_unused(self, sid: str) -> bool:
        record, box = await self._facts.with_session(sid)
        if record is None or box is None:
            return False
        view = BoxView(record, box)
        if not view.live or view.paused or not self._idle(record):
            return False
        uses = self._use.count(sid)

        def unused() -> bool:
            return self._use.count(sid) == uses and not self._processes.listed(sid)

        with self._sleep.removing(sid):
            await self._processes.adopt(sid, await self._runtime.attach(record.container_id))
            if not unused():
                return False
            checkpoint = await self._sleep.take(view)
            if checkpoint.left_out:
                log.info("box does not sleep", sid=sid, why=f"it has {', '.join(checkpoint.left_out)}")
            elif unused() and (await self._sleep.let_go(view, unused=unused)).record.asleep:
                log.info("box sleeps", sid=sid)
                return True
            self._sleep.forget(sid)
        return False
