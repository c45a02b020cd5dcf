"""The nodes that share this Redis: which are alive, with how much capacity, and which has which images.

A node is alive while its heartbeat is younger than the TTL, by Redis's own clock, so that no node's clock decides about
another. Only a node whose own heartbeats came in time for a whole TTL may declare another one dead: right after an
outage of Redis all heartbeats have expired, so that a missing one proves nothing.
"""

import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum

from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys


class Hop(StrEnum):
    """Where the current request came from, which decides whether it may be forwarded."""

    FREE = "free"
    """From a client: it may be forwarded."""
    FORWARDED = "forwarded"
    """From another node: it is served here, or sent back."""
    TRIED = "tried"
    """From a client, but the node that owns the session could not be reached: it must be answered here."""


HOP: ContextVar[Hop] = ContextVar("hop", default=Hop.FREE)
"""The hop of the current request."""

IMAGES_KEPT_S = 7 * 86400
"""Seconds until an image report expires; each server reports its images when it starts."""

# KEYS: heartbeat, boots, nodes, placed, name. ARGV: record, its TTL in ms, node, boot
# -> 1; 0 if this was not the current boot: it is the first beat, Redis came back empty, or another node has declared
# this one dead
_BEAT = Script("""
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('HDEL', KEYS[4], ARGV[3])
redis.call('DEL', KEYS[5])
if redis.call('HGET', KEYS[2], ARGV[3]) == ARGV[4] then return 1 end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return 0
""")
# KEYS: heartbeat, boots. ARGV: node. Leases of a boot that is not the current one are void.
_BURY = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], 'dead')
return 1
""")
# KEYS: the node's own set. ARGV: prefix of the holders' sets, node, seconds to keep them, "<kind>:<image>"...
_HOLD = Script("""
local prefix, node, kept = ARGV[1], ARGV[2], ARGV[3]
local now = {}
for i = 4, #ARGV do now[ARGV[i]] = true end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if not now[name] then redis.call('SREM', prefix .. name, node) end
end
redis.call('DEL', KEYS[1])
for name in pairs(now) do
  redis.call('SADD', KEYS[1], name)
  redis.call('SADD', prefix .. name, node)
  redis.call('EXPIRE', prefix .. name, kept)
end
redis.call('EXPIRE', KEYS[1], kept)
return 1
""")
# KEYS: heartbeat, its live sessions, its journal, its gradings, nodes, boots. ARGV: node
_FORGET = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('SCARD', KEYS[2]) > 0 then return 0 end
if redis.call('XLEN', KEYS[3]) > 0 or redis.call('XLEN', KEYS[4]) > 0 then return 0 end
redis.call('SREM', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
return 1
""")


class Status(StrEnum):
    """A node's own status."""

    READY = "ready"
    DRAINING = "draining"
    """Finishes its sessions and gradings, and takes no new ones."""


class Liveness(StrEnum):
    """What this server knows about a node."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """No heartbeat, but this server's own heartbeats have not come in time for long enough to call it dead."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node, by its last heartbeat."""

    node: str
    url: str
    """URL by which other nodes reach its server."""
    boot: str
    """Boot id of its server process."""
    status: str = Status.READY
    version: str = ""
    engine: str = ""
    """Version of Docker."""
    cpus: int = 0
    memory_mb: int = 0
    slots: int = 0
    """Maximum number of sessions."""
    used: int = 0
    waiting: int = 0
    """Starts that wait for a slot."""
    parked: Mapping[str, int] = field(default_factory=dict)
    """Instance id -> containers parked for its starts."""
    grade_slots: int = 0
    gradings: int = 0
    """Gradings that run or wait on this node."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Reason (daemon, disk, data) -> description; while there are any, the node takes nothing new."""
    vitals: Mapping[str, float | None] = field(default_factory=dict)
    """The fields of its last `fleet.vitals.Reading`; {} before the first."""
    beats: int = 0
    """Heartbeats since the server started."""
    hop_secret: str = field(default="", repr=False)
    """Secret that authenticates requests forwarded by other nodes; known to nodes only."""
    place: str = ""
    """Where its server runs, by `app.server_lock.place_of`; "" from older releases."""
    proves: bool = False
    """Whether the node can prove its identity with `Nodes.proof`; older releases cannot."""

    @property
    def takes(self) -> bool:
        """Whether it takes new work."""
        return self.status == Status.READY and not self.faults


@dataclass(frozen=True, slots=True)
class Holders:
    """Nodes that have an image."""

    present: frozenset[str]
    prepared: frozenset[str]
    """Nodes that have the prepared image, so that sessions start from it at once."""


_FIELDS = frozenset(field.name for field in fields(NodeRecord))


def proof(hop_secret: str, nonce: str) -> str:
    """HMAC of `nonce`, which only a node with this secret can make, and which does not reveal the secret."""
    return hmac.new(hop_secret.encode(), b"node:" + nonce.encode("latin-1", "replace"), hashlib.sha256).hexdigest()


class Nodes:
    """One server's view of all nodes. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str, boot: str, ttl_s: float) -> None:
        """`ttl_s`: a node without a heartbeat for this long counts as dead."""
        self._connection = connection
        self._keys = keys
        self._node = node
        self._boot = boot
        self._ttl_s = ttl_s
        self._shunned: dict[str, float] = {}
        self._beaten_at: float | None = None
        self._healthy_since: float | None = None
        self._hop_secret = secrets.token_hex(16)

    def is_hop(self, offered: str) -> bool:
        """Whether a request was really forwarded by another node: `offered` is a secret known only from heartbeats."""
        return hmac.compare_digest(offered.encode("latin-1", "replace"), self._hop_secret.encode())

    def proof(self, nonce: str) -> str:
        """Proof to another node, which chose `nonce`, that this process has sent the heartbeats of this node."""
        return proof(self._hop_secret, nonce)

    async def claim(self, place: str, lasts_s: float) -> bool:
        """Take the node's name until the first heartbeat, for `lasts_s` at most; False: a server elsewhere has it."""
        key, ms = self._keys.name(self._node), max(1, int(lasts_s * 1000))
        if await self._connection.send("SET", key, place, "NX", "PX", ms) is not None:
            return True
        return bool(await self._connection.send("GET", key) == place.encode())

    async def disclaim(self, place: str) -> None:
        """Give the name back, if no heartbeat has come since."""
        if await self._connection.send("GET", self._keys.name(self._node)) == place.encode():
            await self._connection.send("DEL", self._keys.name(self._node))

    async def beat(self, record: NodeRecord) -> bool:
        """Send this node's heartbeat. False: it was unknown, or another node has declared it dead."""
        told = json.dumps(asdict(record) | {"hop_secret": self._hop_secret, "proves": True})
        known = await self._connection.script(
            _BEAT,
            [
                self._keys.node(self._node),
                self._keys.boots,
                self._keys.nodes,
                self._keys.placements,
                self._keys.name(self._node),
            ],
            [told, max(1, int(self._ttl_s * 1000)), self._node, self._boot],
        )
        now = time.monotonic()
        if self._beaten_at is None or now - self._beaten_at > self._ttl_s / 2:  # a slow answer counts as late
            self._healthy_since = now
        self._beaten_at = now
        return bool(known == 1)

    async def leave(self) -> None:
        """Delete the heartbeat on orderly shutdown: the node counts as dead at once."""
        await self._connection.send("DEL", self._keys.node(self._node))

    async def get(self, node: str) -> NodeRecord | None:
        """The node's last heartbeat, or None."""
        return _record(await self._connection.send("GET", self._keys.node(node)))

    async def silent_s(self, node: str) -> float:
        """Seconds since the node's last heartbeat, infinite without one; assumes that all nodes have the same TTL."""
        left_ms = await self._connection.send("PTTL", self._keys.node(node))
        return max(0.0, self._ttl_s - left_ms / 1000) if left_ms >= 0 else math.inf

    async def alive(self) -> list[NodeRecord]:
        """All nodes with a heartbeat, sorted by name."""
        names = await self.names()
        return [record for record, _ in await self.look(names)] if names else []

    def shun(self, node: str) -> None:
        """Avoid the node for a while, because it did not answer a request."""
        self._shunned[node] = time.monotonic()

    def is_shunned(self, node: str) -> bool:
        """Whether it failed to answer within the last TTL."""
        return time.monotonic() - self._shunned.get(node, -math.inf) < self._ttl_s

    async def liveness(self, node: str) -> Liveness:
        """Whether the node is alive; DEAD also voids all leases that it holds."""
        if not self._can_judge_liveness():
            return Liveness.ALIVE if await self.get(node) is not None else Liveness.UNKNOWN
        buried = await self._connection.script(_BURY, [self._keys.node(node), self._keys.boots], [node])
        return Liveness.DEAD if buried else Liveness.ALIVE

    async def hold(self, present: Iterable[str], prepared: Iterable[str]) -> None:
        """Report the task images on this node, and those of them that are prepared."""
        names = [*(f"present:{image}" for image in present), *(f"prepared:{image}" for image in prepared)]
        await self._connection.script(
            _HOLD, [self._keys.images(self._node)], [self._keys.holders(""), self._node, IMAGES_KEPT_S, *names]
        )

    async def holders(self, images: Sequence[str]) -> Holders:
        """The nodes that have any of the images, including dead nodes."""
        found = [
            await self._connection.send("SUNION", *(self._keys.holders(f"{kind}:{image}") for image in images))
            for kind in ("present", "prepared")
        ]
        present, prepared = (frozenset(name.decode() for name in names) for names in found)
        return Holders(present | prepared, prepared)

    async def names(self) -> list[str]:
        """All known nodes, including dead ones."""
        return sorted(name.decode() for name in await self._connection.send("SMEMBERS", self._keys.nodes))

    async def look(self, names: Sequence[str]) -> list[tuple[NodeRecord, int]]:
        """(heartbeat, sessions placed there since then) for each of `names` with a heartbeat."""
        texts = await self._connection.send("MGET", *(self._keys.node(name) for name in names))
        counts = await self._connection.send("HMGET", self._keys.placements, *names)
        found = ((_record(text), int(count or 0)) for text, count in zip(texts, counts, strict=True))
        return [(record, count) for record, count in found if record is not None]

    async def place(self, node: str, count: int) -> None:
        """Count sessions sent to a node since its last heartbeat."""
        await self._connection.send("HINCRBY", self._keys.placements, node, count)

    async def forget(self, node: str) -> None:
        """Drop a dead node if it has no session, no grading and no entry on its way to SQL."""
        keys = self._keys
        await self._connection.script(
            _FORGET,
            [*(of(node) for of in (keys.node, keys.live, keys.pending, keys.gradings)), keys.nodes, keys.boots],
            [node],
        )

    async def announce(self, node: str, instance_ids: Sequence[str]) -> None:
        """Tell a node that these instances will be started there."""
        if instance_ids:
            key = self._keys.wishes(node)
            await self._connection.send("RPUSH", key, *instance_ids)
            await self._connection.send("PEXPIRE", key, max(1, int(4000 * self._ttl_s)))

    async def announced(self) -> list[str]:
        """Take the announcements for this node, at most 1,000 at a time."""
        return [
            name.decode() for name in await self._connection.send("LPOP", self._keys.wishes(self._node), 1000) or []
        ]

    async def drain(self, node: str) -> None:
        """Ask a node to take nothing new and to end when it is empty."""
        await self._connection.send("SET", self._keys.drain(node), "1")

    async def draining(self) -> bool:
        """Whether this node was asked to drain."""
        return bool(await self._connection.send("EXISTS", self._keys.drain(self._node)))

    async def clear_drain(self, node: str) -> None:
        """Clear the request to drain: the node is empty, its server was restarted, or the request is withdrawn."""
        await self._connection.send("DEL", self._keys.drain(node))

    def healthy_for_s(self) -> float:
        """For how many seconds this node's heartbeats have come in time; 0.0 if the last one is late."""
        if self._healthy_since is None or self._beaten_at is None:
            return 0.0
        in_time = time.monotonic() - self._beaten_at <= self._ttl_s / 2
        return self._beaten_at - self._healthy_since if in_time else 0.0

    def _can_judge_liveness(self) -> bool:
        return self.healthy_for_s() >= self._ttl_s


def _record(text: bytes | None) -> NodeRecord | None:
    if text is None:
        return None
    # ignore unknown fields of a newer server
    return NodeRecord(**{name: value for name, value in json.loads(text).items() if name in _FIELDS})
