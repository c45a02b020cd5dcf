"""The differences between task sessions and boxes, for the parts that watch both: the reaper and the disk watch."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandbox_server.records import SessionKind, SessionRecord
from sandbox_server.sandbox.base import ContainerInfo
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.redis_reconciler import RedisReconciler


class Kind(Protocol):
    """A kind of session: task, or box (`boxes.kind`). Methods raise StateUnavailable, CatalogueUnavailable."""

    at_deadline: str
    """The end reason of a session that has reached its deadline."""

    def idle(self, record: SessionRecord, now: float) -> bool:
        """Whether the session ends because nobody uses it; `now`: Unix seconds."""
        ...

    async def disk_mb(self, record: SessionRecord) -> int:
        """MiB that the session may write to its container."""
        ...

    async def pause_at_end(self, record: SessionRecord) -> bool:
        """At its deadline, pause the session instead of ending it; False if it is to be ended. Raises ServiceError."""
        ...

    async def reconcile(self, record: SessionRecord) -> bool:
        """Put back what Redis lacks of a session; returns whether it lacked anything. `record`: what Redis has.

        Raises also EngineUnavailable.
        """
        ...

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """Make the engine's state match the records. `sessions`: all of this node, also those of other kinds."""
        ...

    async def save(self, records: Sequence[SessionRecord]) -> None:
        """Write to SQL what Redis has about the sessions beyond their records."""
        ...

    async def rebuild(self, record: SessionRecord) -> None:
        """Write to Redis what SQL has about the session beyond its record."""
        ...


Kinds = Mapping[SessionKind, Kind]


class TaskKind:
    """Sessions of instances, which have no data beyond their record and are never paused."""

    at_deadline = "max_age"

    def __init__(
        self, data: SessionData, reconciler: RedisReconciler, *, idle_s: float, disk_mb: int, wait_s: float
    ) -> None:
        """`disk_mb`: the default for instances without a limit of their own. `wait_s`: for a session's lock."""
        self._instances = data.instances
        self._store = data.store
        self._reconciler = reconciler
        self._wait_s = wait_s
        self._idle_s = idle_s
        self._disk_mb = disk_mb

    def idle(self, record: SessionRecord, now: float) -> bool:
        """See `Kind.idle`."""
        return now - record.touched_at > self._idle_s

    async def disk_mb(self, record: SessionRecord) -> int:
        """See `Kind.disk_mb`. Also raises UnknownInstance."""
        instance = await self._instances.by_id(record.instance_id)
        return instance.sandbox.disk_mb or self._disk_mb

    async def pause_at_end(self, record: SessionRecord) -> bool:
        """See `Kind.pause_at_end`."""
        return False

    async def reconcile(self, record: SessionRecord) -> bool:
        """See `Kind.reconcile`: missing actions, and the container if Redis missed that the session slept or woke."""
        if not self._reconciler.is_behind(record) and (
            record.asleep or not await self._reconciler.has_another_container(record)
        ):
            return False
        async with self._store.lock(record.sid, self._wait_s):
            await self._reconciler.reconcile(record.sid, lost=record.container_id)
        return True  # `record` is behind, also if another request has put back what Redis lacked

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """See `Kind.follow`."""

    async def save(self, records: Sequence[SessionRecord]) -> None:
        """See `Kind.save`."""

    async def rebuild(self, record: SessionRecord) -> None:
        """See `Kind.rebuild`."""
