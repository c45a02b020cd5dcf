"""On which node a session begins: where its image is ready, and where there is room.

A node's score is what of the image it has, plus what share of its slots is free:

    3    a container is parked there for this instance
    2    the image is prepared
    1    the task image is on the engine
    0    it would have to be pulled
    + 2 x free share of the slots; full: -10 and -1 for each queue as long as the slots
    + up to 1 by a hash of instance and node, where the node has nothing of the image
    + 0.1 for the server that was asked: another one costs a hop

So a node with the prepared image is left for one that only has the task image once that one's free share is larger
by half. The hash has all servers send the samples of a new instance to the same node, and other instances to others,
where each would else pull the image or run to the same emptiest node (simulated: docs/scaling.md). Of many nodes only
some are looked at, all of them only when those are full. Nodes that drain,
have a fault or did not answer lately are not considered.
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
"""Of each kind of candidate: what a choice costs does not grow with the fleet."""
_NAMES_FOR_S = 5.0  # a new node may wait so long for its first session


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of one instance, or of a kind of boxes: who has what."""

    instance_id: str
    """Or what boxes of this kind are known by."""
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


class Ring:
    """Node names on a circle: each key has the same neighbours on every server, and a new node moves few."""

    def __init__(self, names: Iterable[str]) -> None:
        self._points = sorted((zlib.crc32(name.encode()), name) for name in names)

    def __len__(self) -> int:
        return len(self._points)

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._points)

    def after(self, key: str, count: int) -> list[str]:
        """The `count` names that follow the key's place, fewer where there are not so many."""
        first = bisect_left(self._points, (zlib.crc32(key.encode()), ""))
        return [self._points[(first + i) % len(self._points)][1] for i in range(min(count, len(self._points)))]


def candidates(ring: Ring, wanted: Wanted) -> set[str]:
    """The nodes that are looked at: some that have the image, and the instance's own neighbourhood."""
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
        """This node takes nothing new."""

    async def ready(self) -> None:
        """Raises CapacityError while this node is being drained: a balancer is to send its requests to others."""
        if self.draining:
            raise CapacityError("being drained", reason="draining")

    async def settle(self, instance: TaskInstance, count: int = 1) -> None:
        """Return if `count` sessions of `instance` are to begin here.

        Raises:
            OwnedElsewhere: there is a better place. CapacityError: this node drains, and there is no other.

        """
        await self.settle_as(instance.instance_id, instance.sandbox.image_keys, count)

    async def settle_as(self, name: str, images: Sequence[str], count: int = 1) -> None:
        """As `settle`, for what alike starts are known by, and any of these images."""
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
        """The best node for `count` sessions; this one where nobody else takes any."""
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
        """The best of them that takes any; None: there is none with room, and there are more nodes than these."""
        found = await self._nodes.look(sorted(names - {self._node} if self.draining else names))
        scores = {
            record.node: score(record, wanted, placed=placed, here=record.node == self._node)
            for record, placed in found
            if record.takes
            and not self._nodes.is_shunned(record.node)
            and not (self.draining and record.node == self._node)
        }
        best = max(scores, key=scores.__getitem__, default=None)
        is_full = best is None or scores[best] < 0
        return None if is_full and len(names) < len(self._ring) else best
