"""Chooses the node of a new session by its image and its free slots.

A node's score is the state of the image there plus the free share of its slots:

    3    a container is parked there for this instance
    2    the image is prepared
    1    the task image is on the engine
    0    the image would have to be pulled
    + 2 x free share of the slots; if none is free: -10, and -1 per `slots` waiting starts
    + up to 1 by a hash of instance and node, if the node has no form of the image
    + 0.1 for the server that got the request: another one costs a hop

So a node with only the task image beats one with the prepared image once its free share is larger by 0.5. By the
hash, all servers send the samples of a new instance to the same node, and other instances to other nodes. Without it
every node would pull the image, or all starts would go to the same emptiest node (simulated: docs/scaling.md). In a
large fleet only some nodes are considered, and all of them only when those are full. Nodes that are draining, have a
fault or did not answer recently are not considered.
"""

import time
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import CapacityError, OwnedElsewhere
from sandbox_server.state.nodes import HOP, Holders, Hop, NodeRecord, Nodes

PARKED, PREPARED, PRESENT, ROOM, FULL, HASH, HERE = 3.0, 2.0, 1.0, 2.0, -10.0, 1.0, 0.1
LOOKED_AT = 24
"""Maximum candidates of each kind, so that the cost of a choice does not grow with the fleet."""
_NAMES_FOR_S = 5.0  # how long the list of nodes is reused; a new node gets its first session after at most this


@dataclass(frozen=True, slots=True)
class Wanted:
    """An instance, or a kind of boxes, to be placed, and the nodes that have its image."""

    instance_id: str
    """Or the name of the kind of boxes."""
    holders: Holders


def score(node: NodeRecord, wanted: Wanted, *, placed: int, here: bool) -> float:
    """The node's score, higher is better; `placed`: sessions sent there that its last heartbeat does not include."""
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


class Ring:
    """Consistent hashing: each key has the same neighbours on every server, and a new node changes few of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._points = sorted((zlib.crc32(name.encode()), name) for name in names)

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._points)

    def after(self, key: str, count: int) -> list[str]:
        """The `count` names after the key's place on the circle; all names if there are fewer."""
        first = bisect_left(self._points, (zlib.crc32(key.encode()), ""))
        return [self._points[(first + i) % len(self._points)][1] for i in range(min(count, len(self._points)))]


def candidates(ring: Ring, wanted: Wanted) -> set[str]:
    """The nodes to consider: some that have the image, and the key's neighbours on the ring."""
    holders = wanted.holders
    some = (islice(sorted(names), LOOKED_AT) for names in (holders.prepared, holders.present))
    return {*ring.after(wanted.instance_id, LOOKED_AT), *chain.from_iterable(some)}


class Placement:
    """Chooses nodes for this server's starts."""

    def __init__(self, nodes: Nodes, *, node: str) -> None:
        self._nodes = nodes
        self._node = node
        self._ring = Ring(())
        self._named_at = float("-inf")
        self.draining = False
        """Whether this node is being drained and takes nothing new."""

    async def ready(self) -> None:
        """Readiness probe. Raises CapacityError while this node drains, so that a load balancer uses other nodes."""
        if self.draining:
            raise CapacityError("being drained", reason="draining")

    async def settle(self, instance: TaskInstance, count: int = 1) -> None:
        """Return if `count` sessions of `instance` should start here.

        Raises:
            OwnedElsewhere: another node is better. CapacityError: this node is draining, and no other takes sessions.

        """
        await self.settle_as(instance.instance_id, instance.sandbox.image_keys, count)

    async def settle_as(self, name: str, images: Sequence[str], count: int = 1) -> None:
        """As `settle`, for starts of this name (`Plan.name`) and an image with any of these names."""
        forwarded = HOP.get() is not Hop.FREE
        node = self._node if forwarded else await self._choose(name, images, count)
        if node != self._node:
            raise OwnedElsewhere(node)
        if self.draining:
            raise CapacityError(
                f"node {self._node} is being drained and takes nothing new; no other node takes any",
                reason="draining",
            )

    async def choose(self, instance: TaskInstance, count: int = 1) -> str:
        """The best node for `count` sessions; this one if no other node takes any."""
        return await self._choose(instance.instance_id, instance.sandbox.image_keys, count)

    async def _choose(self, name: str, images: Sequence[str], count: int) -> str:
        if time.monotonic() - self._named_at > _NAMES_FOR_S:
            self._ring = Ring(await self._nodes.names())
            self._named_at = time.monotonic()
        if len(self._ring) <= 1:
            return self._node
        wanted = Wanted(name, await self._nodes.holders(images))
        best = await self._best(wanted, candidates(self._ring, wanted) | {self._node})
        if best is None:
            best = await self._best(wanted, set(self._ring))
        if best is None:
            return self._node
        await self._nodes.place(best, count)
        return best

    async def _best(self, wanted: Wanted, names: set[str]) -> str | None:
        """The best of these nodes; None if all are full or take nothing and the ring has more nodes."""
        found = await self._nodes.look(sorted(names - {self._node} if self.draining else names))
        scores = {
            record.node: score(record, wanted, placed=placed, here=record.node == self._node)
            for record, placed in found
            if record.takes and not self._nodes.is_shunned(record.node)
        }
        best = max(scores, key=scores.__getitem__, default=None)
        is_full = best is None or scores[best] < 0
        return None if is_full and len(names) < len(self._ring) else best
