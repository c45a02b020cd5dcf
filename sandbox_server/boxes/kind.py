"""Boxes as the reaper and the disk watch see them."""

from collections.abc import Sequence

from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.monitoring import BoxMonitoring
from sandbox_server.boxes.use import BoxUse
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.records import SessionKind, SessionRecord
from sandbox_server.sandbox.base import ContainerInfo
from sandbox_server.state.boxes import BoxFacts


class BoxesKind:
    """A `sessions.kinds.Kind`. A box ends or is paused at its deadline; idle ones end if the operator says so."""

    at_deadline = "timeout"

    def __init__(
        self,
        facts: BoxFacts,
        history: BoxHistory,
        lives: BoxLives,
        use: BoxUse,
        monitoring: BoxMonitoring,
        *,
        node: str,
        disk_mb: int,
    ) -> None:
        """`disk_mb`: for boxes missing from Redis."""
        self._monitoring = monitoring
        self._facts = facts
        self._history = history
        self._lives = lives
        self._use = use
        self._node = node
        self._disk_mb = disk_mb

    def idle(self, record: SessionRecord, now: float) -> bool:
        """See `Kind.idle`. Only a box's own node knows."""
        return record.node == self._node and self._use.idle(record.sid, record.touched_at, now)

    async def disk_mb(self, record: SessionRecord) -> int:
        """See `Kind.disk_mb`."""
        _, box = await self._facts.with_session(record.sid)
        return self._disk_mb if box is None else box.disk_mb

    async def reconcile(self, record: SessionRecord) -> bool:
        """See `Kind.reconcile`."""
        return await self._lives.reconcile(record.sid)

    async def pause_at_end(self, record: SessionRecord) -> bool:
        """See `Kind.pause_at_end`."""
        return await self._lives.pause_at_end(record.sid)

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """See `Kind.follow`."""
        for container in containers:
            if container.paused:  # SANDBOX_BOX_PAUSED_MAX_S bounds this
                self._use.note(container.sid)
        asleep = [record.sid for record in sessions if record.kind is SessionKind.BOX and record.asleep]
        for sid, box in (await self._facts.all(asleep)).items():
            if box.paused_at:
                self._use.note(sid)
        live = {record.sid for record in sessions}
        self._use.keep(live)
        self._monitoring.keep(live)
        self._facts.keep(live)
        await self._lives.follow(containers, sessions)

    async def save(self, records: Sequence[SessionRecord]) -> None:
        """See `Kind.save`."""
        boxes = await self._facts.all([record.sid for record in records if record.kind is SessionKind.BOX])
        await self._history.save(list(boxes.values()))

    async def rebuild(self, record: SessionRecord) -> None:
        """See `Kind.rebuild`."""
        if box := await self._history.get(record.sid):
            await self._facts.put(box, record.deadline)
