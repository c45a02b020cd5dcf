"""The nodes that share this Redis: who is there, with how much room, and which images where.

A node is alive while its heartbeat is younger than its time to live, by Redis's own clock, so that no node's clock
decides about another. That it is dead may only be said by who sees clearly: after Redis itself was away, all
heartbeats have run out, and it takes one time to live until those that are missing mean anything.
"""

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
    """How far the request that is being served has come."""

    FREE = "free"
    """From a client: it may be sent on."""
    FORWARDED = "forwarded"
    """From another node: it is served here, or sent back."""
    TRIED = "tried"
    """From a client; the node it belongs to could not be reached: it is answered here, whatever the answer is."""


HOP: ContextVar[Hop] = ContextVar("hop", default=Hop.FREE)
"""Of the request that is being served."""

IMAGES_KEPT_S = 7 * 86400
"""Who has an image is forgotten after this, unless told again; each server tells it when it starts."""

# KEYS: the heartbeat, boots, nodes, placed. ARGV: record, its time to live in ms, node, boot
# -> 1, or 0 when this boot was not the present one: the first beat, Redis came back empty, or another node has taken
# this one for dead
_BEAT = Script("""
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('HDEL', KEYS[4], ARGV[3])
if redis.call('HGET', KEYS[2], ARGV[3]) == ARGV[4] then return 1 end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return 0
""")
# KEYS: the heartbeat, boots. ARGV: node. No lease of a boot that is not the present one is worth anything.
_BURY = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], 'dead')
return 1
""")
# KEYS: the node's own set. ARGV: prefix of the holders' sets, node, seconds they are kept, "<kind>:<image>"...
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
# KEYS: the heartbeat, its live sessions, its journal, its gradings, nodes, boots. ARGV: node
_FORGET = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('SCARD', KEYS[2]) > 0 then return 0 end
if redis.call('XLEN', KEYS[3]) > 0 or redis.call('XLEN', KEYS[4]) > 0 then return 0 end
redis.call('SREM', KEYS[5], ARGV[1])
redis.call('HDEL', KEYS[6], ARGV[1])
return 1
""")


class Status(StrEnum):
    """What a node says of itself."""

    READY = "ready"
    DRAINING = "draining"
    """It finishes what it has and takes nothing new."""


class Fate(StrEnum):
    """What may be said of a node from here."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"
    """No heartbeat, but this server has not seen Redis for long enough to call it dead."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node, as its last heartbeat tells."""

    node: str
    url: str
    """Where the other nodes reach its server."""
    boot: str
    """Of its server process."""
    status: str = Status.READY
    version: str = ""
    engine: str = ""
    """Docker's version."""
    cpus: int = 0
    memory_mb: int = 0
    slots: int = 0
    """Sessions that it holds at most."""
    used: int = 0
    waiting: int = 0
    """Starts that wait for a slot."""
    parked: Mapping[str, int] = field(default_factory=dict)
    """Instance id -> containers that wait for its starts."""
    grade_slots: int = 0
    gradings: int = 0
    """Running and waiting on this node."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Reason (disk, daemon) -> what is wrong; while there is any, it takes nothing new."""
    beats: int = 0
    """Since the server started."""
    hop_secret: str = field(default="", repr=False)
    """What a request must bear that another node sends on to it; told to nobody but nodes."""

    @property
    def takes(self) -> bool:
        """It takes new work."""
        return self.status == Status.READY and not self.faults


@dataclass(frozen=True, slots=True)
class Holders:
    """Nodes that have an image."""

    present: frozenset[str]
    prepared: frozenset[str]
    """Those where sessions start from it at once."""


_FIELDS = frozenset(field.name for field in fields(NodeRecord))


class Nodes:
    """One server's view of all nodes. Every method raises StateUnavailable when Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str, boot: str, ttl_s: float) -> None:
        """`ttl_s`: a node without a heartbeat for this long counts as dead."""
        self._connection = connection
        self._keys = keys
        self._node = node
        self._boot = boot
        self._ttl_s = ttl_s
        self._shunned: dict[str, float] = {}
        self._beaten_at: float | None = None
        self._clear_since: float | None = None
        self._hop_secret = secrets.token_hex(16)

    def is_hop(self, offered: str) -> bool:
        """Whether a request that says so was sent on by another node: it knows what only the heartbeat tells."""
        return hmac.compare_digest(offered.encode("latin-1", "replace"), self._hop_secret.encode())

    async def beat(self, record: NodeRecord) -> bool:
        """Say that this node is alive. False: nobody knew, or somebody took it for dead meanwhile."""
        began = time.monotonic()
        told = json.dumps(asdict(record) | {"hop_secret": self._hop_secret})
        known = await self._connection.script(
            _BEAT,
            [self._keys.node(self._node), self._keys.boots, self._keys.nodes, self._keys.placed],
            [told, max(1, int(self._ttl_s * 1000)), self._node, self._boot],
        )
        now = time.monotonic()
        if self._beaten_at is None or now - self._beaten_at > self._ttl_s / 2 or now - began > self._ttl_s / 2:
            self._clear_since = now
        self._beaten_at = now
        return bool(known == 1)

    async def leave(self) -> None:
        """Take the heartbeat away: this node's server ends in order, and counts as dead at once."""
        await self._connection.send("DEL", self._keys.node(self._node))

    async def get(self, node: str) -> NodeRecord | None:
        """What the node's last heartbeat said; None: there is none."""
        return _record(await self._connection.send("GET", self._keys.node(node)))

    async def alive(self) -> list[NodeRecord]:
        """All that have a heartbeat, by name."""
        names = await self.names()
        return [record for record, _ in await self.look(names)] if names else []

    def shun(self, node: str) -> None:
        """It did not answer a request: nothing new is to be sent there for a while."""
        self._shunned[node] = time.monotonic()

    def is_shunned(self, node: str) -> bool:
        """Whether it failed to answer within the last time to live."""
        return time.monotonic() - self._shunned.get(node, -math.inf) < self._ttl_s

    async def fate(self, node: str) -> Fate:
        """Whether the node lives; DEAD also ends every lease that it holds."""
        if not self._sees_clearly():
            return Fate.ALIVE if await self.get(node) is not None else Fate.UNKNOWN
        buried = await self._connection.script(_BURY, [self._keys.node(node), self._keys.boots], [node])
        return Fate.DEAD if buried else Fate.ALIVE

    async def hold(self, present: Iterable[str], prepared: Iterable[str]) -> None:
        """Tell which task images this node has, and from which of them sessions start at once."""
        names = [*(f"present:{image}" for image in present), *(f"prepared:{image}" for image in prepared)]
        await self._connection.script(
            _HOLD, [self._keys.images(self._node)], [self._keys.holders(""), self._node, IMAGES_KEPT_S, *names]
        )

    async def holders(self, images: Sequence[str]) -> Holders:
        """The nodes that have any of the images, also such as are dead."""
        found = [
            await self._connection.send("SUNION", *(self._keys.holders(f"{kind}:{image}") for image in images))
            for kind in ("present", "prepared")
        ]
        present, prepared = (frozenset(name.decode() for name in names) for names in found)
        return Holders(present | prepared, prepared)

    async def names(self) -> list[str]:
        """All nodes that are known, the dead included."""
        return sorted(name.decode() for name in await self._connection.send("SMEMBERS", self._keys.nodes))

    async def look(self, names: Sequence[str]) -> list[tuple[NodeRecord, int]]:
        """Those of `names` that have a heartbeat, and how many sessions were sent to each since."""
        texts = await self._connection.send("MGET", *(self._keys.node(name) for name in names))
        counts = await self._connection.send("HMGET", self._keys.placed, *names)
        found = ((_record(text), int(count or 0)) for text, count in zip(texts, counts, strict=True))
        return [(record, count) for record, count in found if record is not None]

    async def place(self, node: str, count: int) -> None:
        """Sessions were sent to a node that its last heartbeat does not count."""
        await self._connection.send("HINCRBY", self._keys.placed, node, count)

    async def forget(self, node: str) -> None:
        """Nothing is left of a dead node: no session, no grading, nothing on its way to SQL. Else it stays."""
        keys = self._keys
        await self._connection.script(
            _FORGET,
            [*(of(node) for of in (keys.node, keys.live, keys.pending, keys.gradings)), keys.nodes, keys.boots],
            [node],
        )

    async def announce(self, node: str, instance_ids: Sequence[str]) -> None:
        """Leave word for a node: these instances will be started there."""
        if instance_ids:
            key = self._keys.wishes(node)
            await self._connection.send("RPUSH", key, *instance_ids)
            await self._connection.send("PEXPIRE", key, max(1, int(4000 * self._ttl_s)))

    async def announced(self) -> list[str]:
        """Take the word that others left for this node, at most 1,000 at a time."""
        return [
            name.decode() for name in await self._connection.send("LPOP", self._keys.wishes(self._node), 1000) or []
        ]

    async def drain(self, node: str) -> None:
        """Ask a node to take nothing new and to end when it is empty."""
        await self._connection.send("SET", self._keys.drain(node), "1")

    async def draining(self) -> bool:
        """Whether this node was asked to drain."""
        return bool(await self._connection.send("EXISTS", self._keys.drain(self._node)))

    async def drained(self, node: str) -> None:
        """The request to drain is answered (the node is empty, or a new server of it begins) or taken back."""
        await self._connection.send("DEL", self._keys.drain(node))

    def clear_for_s(self) -> float:
        """For how long this node's heartbeats have come in time: it ran, and Redis answered it; 0.0 if not now."""
        if self._clear_since is None or self._beaten_at is None:
            return 0.0
        in_time = time.monotonic() - self._beaten_at <= self._ttl_s / 2
        return self._beaten_at - self._clear_since if in_time else 0.0

    def _sees_clearly(self) -> bool:
        return self.clear_for_s() >= self._ttl_s


def _record(text: bytes | None) -> NodeRecord | None:
    if text is None:
        return None
    # fields of a newer server are left out
    return NodeRecord(**{name: value for name, value in json.loads(text).items() if name in _FIELDS})
