"""The nodes as a fleet: which there are, which of them drain, and what each prepares for future sessions."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import UnknownInstance, UnknownNode
from sandbox_server.fleet.placement import Placement
from sandbox_server.pool.bucket import BucketView
from sandbox_server.pool.lookahead import Failure, Lookahead
from sandbox_server.pool.pool import Pool
from sandbox_server.state.nodes import NodeRecord, Nodes


@dataclass(frozen=True, slots=True)
class AnnouncementResult:
    """The result of an announcement of starts."""

    queued: int
    """Instances that will be prepared, in the given order."""
    unknown: tuple[int | str, ...]
    """Instances that are not in the catalogue."""
    dropped: int
    """Known instances for which the queue had no room."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """The containers and images that are ready, or being prepared, for future starts."""

    size: int
    """Maximum number of parked containers."""
    buckets: Sequence[BucketView]
    preparing: Sequence[str]
    """Announced instances whose image is not ready yet."""
    failures: Sequence[Failure]


class FleetView:
    """The nodes of the service, and the images and containers that they have ready."""

    def __init__(
        self, instances: Instances, nodes: Nodes, placement: Placement, lookahead: Lookahead, pool: Pool, *, node: str
    ) -> None:
        """`node`: this node, whose `lookahead` and `pool` these are."""
        self._instances = instances
        self._nodes = nodes
        self._placement = placement
        self._lookahead = lookahead
        self._pool = pool
        self._node = node

    async def look_ahead(self, instances: Sequence[int | str]) -> AnnouncementResult:
        """Prepare images and park containers for future starts, each on the node where it would be placed."""
        tasks, unknown = [], []
        for instance in instances:
            try:
                tasks.append(await self._instances.named(instance))
            except UnknownInstance:
                unknown.append(instance)
        places: dict[str, list[TaskInstance]] = {}
        for task in tasks:
            places.setdefault(await self._placement.choose(task), []).append(task)
        mine = places.pop(self._node, [])
        for node, theirs in places.items():
            await self._nodes.announce(node, [task.instance_id for task in theirs])
        queued = self._lookahead.add(mine)
        return AnnouncementResult(len(tasks) - len(mine) + queued, tuple(unknown), len(mine) - queued)

    async def announced(self, instance_ids: Sequence[str]) -> None:
        """Prepare for starts of these instances, which other nodes expect to be placed here."""
        tasks = []
        for instance_id in instance_ids:
            with suppress(UnknownInstance):
                tasks.append(await self._instances.by_id(instance_id))
        self._lookahead.add(tasks)

    def pool(self) -> PoolView:
        """The containers of this node that are parked, being made and wanted."""
        return PoolView(self._pool.size, self._pool.view(), self._lookahead.waiting, self._lookahead.failures)

    async def nodes(self) -> list[NodeRecord]:
        """All nodes with a heartbeat."""
        return await self._nodes.alive()

    async def drain(self, node: str, *, begin: bool) -> None:
        """Drain a node: it takes nothing new and ends once empty. `begin=False` cancels that. Raises UnknownNode."""
        if await self._nodes.get(node) is None:
            raise UnknownNode(f"no node {node!r} has a heartbeat; GET /v1/nodes lists those that have")
        await (self._nodes.drain(node) if begin else self._nodes.clear_drain(node))
