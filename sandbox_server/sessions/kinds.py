"""What differs between sessions of tasks and boxes, for the parts that watch both: the reaper, the disk watch."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandbox_server.catalogue.instances import Instances
from sandbox_server.records import SessionKind, SessionRecord
from sandbox_server.sandbox.base import ContainerInfo


class Kind(Protocol):
    """One kind of session; `boxes.kind` has the other one. Methods raise StateUnavailable, CatalogueUnavailable."""

    at_deadline: str
    """The end reason of a session that has reached its deadline."""
    idle_s: float
    """Seconds without a request after which a session ends; infinite: idle sessions stay."""

    async def disk_mb(self, record: SessionRecord) -> int:
        """MiB that the session may write to its container."""
        ...

    async def pause_at_end(self, record: SessionRecord) -> bool:
        """Pause the session in place of the end at its deadline; False: it ends. Raises ServiceError."""
        ...

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """Make the engine agree with the records of this node's `sessions`, of any kind."""
        ...

    async def save(self, records: Sequence[SessionRecord]) -> None:
        """Write to SQL what Redis knows of the sessions beyond their records."""
        ...

    async def rebuild(self, record: SessionRecord) -> None:
        """Write to Redis what SQL knows of the session beyond its record."""
        ...


Kinds = Mapping[SessionKind, Kind]


class TaskKind:
    """Sessions of instances: their record is all there is; they are never paused."""

    at_deadline = "max_age"

    def __init__(self, instances: Instances, *, idle_s: float, disk_mb: int) -> None:
        """`disk_mb`: for instances that name no limit."""
        self._instances = instances
        self.idle_s = idle_s
        self._disk_mb = disk_mb

    async def disk_mb(self, record: SessionRecord) -> int:
        """See `Kind.disk_mb`. Raises UnknownInstance too."""
        instance = await self._instances.by_id(record.instance_id)
        return instance.sandbox.disk_mb or self._disk_mb

    async def pause_at_end(self, record: SessionRecord) -> bool:
        """See `Kind.pause_at_end`."""
        return False

    async def follow(self, containers: Sequence[ContainerInfo], sessions: Sequence[SessionRecord]) -> None:
        """See `Kind.follow`."""

    async def save(self, records: Sequence[SessionRecord]) -> None:
        """See `Kind.save`."""

    async def rebuild(self, record: SessionRecord) -> None:
        """See `Kind.rebuild`."""
