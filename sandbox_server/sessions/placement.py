"""On which node a session begins: where its image is ready, and where there is room.

A node's score is what of the image it has, plus what share of its slots is free:

    3    a container is parked there for this instance
    2    the image is prepared
    1    the task image is on the engine
    0    it would have to be pulled
    + 2 x free share of the slots; full: -10 and -1 for each queue as long as the slots
    + up to 0.5 by a hash of instance and node, where the node has nothing of the image
    + 0.1 for the server that was asked: another one costs a hop

So a node with the prepared image is left for one that only has the task image once that one's free share is larger
by half. The hash has all servers send the samples of a new instance to the same node, and other instances to others,
where each would else pull the image or run to the same emptiest node (simulated: docs/scaling.md). Nodes that drain,
have a fault or did not answer lately are not considered.
"""

import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import CapacityError, OwnedElsewhere
from sandbox_server.state.nodes import HOP, Holders, Hop, NodeRecord, Nodes

PARKED, PREPARED, PRESENT, ROOM, FULL, HASH, HERE = 3.0, 2.0, 1.0, 2.0, -10.0, 0.5, 0.1
_SEEN_FOR_S = 0.5  # looking at all nodes at each start of a burst tells nothing new
_RETRY_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of one instance: who has what."""

    instance_id: str
    holders: Holders


def score(node: NodeRecord, wanted: Wanted, *, placed: int, here: bool) -> float:
    """How good a place `node` is; `placed`: sessions sent there that its heartbeat does not know of yet."""
    if node.parked.get(wanted.instance_id, 0) > placed:
        image = PARKED
    elif node.node in wanted.holders.prepared:
        image = PREPARED
    elif node.node in wanted.holders.present:
        image = PRESENT
    else:
        image = HASH * zlib.crc32(f"{wanted.instance_id} {node.node}".encode()) / 2**32
    slots = max(1, node.slots)
    free = slots - node.used - node.waiting - placed
    room = ROOM * free / slots if free > 0 else FULL + free / slots
    return image + room + HERE * here


class Placement:
    """Chooses nodes for this server's starts."""

    def __init__(self, nodes: Nodes, *, node: str) -> None:
        self._nodes = nodes
        self._node = node
        self._seen: list[NodeRecord] = []
        self._seen_at = float("-inf")
        self._placed: Mapping[str, int] = {}
        self._own: Counter[str] = Counter()
        """Placed by this server since it looked."""
        self.draining = False
        """This node takes nothing new."""

    async def ready(self) -> None:
        """Raises CapacityError while this node is being drained: a balancer is to send its requests to others."""
        if self.draining:
            raise CapacityError("being drained", reason="draining", retry_after_s=_RETRY_AFTER_S)

    async def settle(self, instance: TaskInstance, count: int = 1) -> None:
        """Return if `count` sessions of `instance` are to begin here.

        Raises:
            OwnedElsewhere: there is a better place. CapacityError: this node drains, and there is no other.

        """
        forwarded = HOP.get() is not Hop.FREE
        node = self._node if forwarded else await self.choose(instance, count)
        if node != self._node:
            raise OwnedElsewhere(node)
        if self.draining:
            raise CapacityError(
                f"node {self._node} is being drained and takes nothing new; no other node takes any",
                reason="draining",
                retry_after_s=_RETRY_AFTER_S,
            )

    async def choose(self, instance: TaskInstance, count: int = 1) -> str:
        """The best node for `count` sessions; this one where nobody else takes any."""
        nodes = [record for record in await self._alive() if record.takes and not self._nodes.is_shunned(record.node)]
        if self.draining:
            nodes = [record for record in nodes if record.node != self._node]
        if not nodes or [record.node for record in nodes] == [self._node]:
            return self._node
        wanted = Wanted(instance.instance_id, await self._nodes.holders(instance.sandbox.images))

        def rank(record: NodeRecord) -> float:
            placed = self._placed.get(record.node, 0) + self._own[record.node]
            return score(record, wanted, placed=placed, here=record.node == self._node)

        best = max(nodes, key=rank)
        self._own[best.node] += count
        await self._nodes.placed(best.node, count)
        return best.node

    async def _alive(self) -> list[NodeRecord]:
        if time.monotonic() - self._seen_at > _SEEN_FOR_S:
            self._seen, self._placed = await self._nodes.alive(), await self._nodes.all_placed()
            self._own.clear()
            self._seen_at = time.monotonic()
        return self._seen
