"""Runs in Redis: their owners, their leases, and which starts were answered with which session."""

import hashlib
import json
from collections.abc import Mapping

from sandbox_server import clock
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys

_OWNED_S = 30 * 86400
"""Seconds after which a run's ownership expires unless it starts something."""
_LEASE_KEPT_S = 2 * 86400
"""Seconds after the end of a lease; no session that began before it lives longer."""
_START_S = 900.0
"""A client retries a start within its own timeout, ten minutes."""
_ASKED_S = 600.0
"""Requests to a node expire if it does not take them."""
_AT_A_TIME = 1000

_TAKEN = "+"
"""Prefix of the stored sid, once a repeated request has been answered with that sid too."""
# KEYS: the start. ARGV: _TAKEN -> the sid that the start was answered with, marked as taken
_KNOWN = Script("""
local known = redis.call('GET', KEYS[1])
if not known then return false end
if string.sub(known, 1, 1) == ARGV[1] then return string.sub(known, 2) end
redis.call('SET', KEYS[1], ARGV[1] .. known, 'KEEPTTL')
return known
""")
# KEYS: the start. ARGV: sid, its TTL in ms, _TAKEN -> the sid that the start is answered with
_CLAIM = Script("""
local known = redis.call('GET', KEYS[1])
if not known then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
if string.sub(known, 1, 1) == ARGV[3] then return string.sub(known, 2) end
if known ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[3] .. known, 'KEEPTTL') end
return known
""")
# KEYS: the start. ARGV: sid, _TAKEN
_FORGET = Script("""
local known = redis.call('GET', KEYS[1])
if known == ARGV[1] or known == ARGV[2] .. ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")
# KEYS: the start. ARGV: sid, _TAKEN -> 0: taken
_GIVE_BACK = Script("""
local known = redis.call('GET', KEYS[1])
if known == ARGV[2] .. ARGV[1] then return 0 end
if known == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


class RunState:
    """The state of runs. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str) -> None:
        self._connection = connection
        self._keys = keys
        self._node = node

    # ---- owners

    async def claim(self, run: str, owner: str, *, anew: bool = False) -> str:
        """Make `owner` the owner of the run unless it has one (with `anew` in any case); returns the owner."""
        key = self._keys.run_owner(run)
        options = ("EX", _OWNED_S) if anew else ("EX", _OWNED_S, "NX")
        if await self._connection.send("SET", key, owner, *options):
            return owner
        known = await self._connection.send("GET", key)
        return owner if known is None else str(known.decode())

    # ---- leases

    async def keep(self, run: str, ttl_s: float) -> float:
        """Extend the run's lease to `ttl_s` seconds from now; returns its end in Unix seconds."""
        ends_at = clock.now() + ttl_s
        lease = json.dumps({"ends_at": ends_at, "ttl_s": ttl_s})
        await self._connection.send("HSET", self._keys.run_leases, run, lease)
        return ends_at

    async def release(self, run: str) -> bool:
        """Remove the run's lease; False: it had none."""
        return bool(await self._connection.send("HDEL", self._keys.run_leases, run))

    async def expired_leases(self, *, healthy_for_s: float) -> Mapping[str, float]:
        """Runs whose lease has ended -> its end.

        `healthy_for_s`: for how long this node has certainly been able to take renewals. A lease only counts as ended
        if that is longer than its TTL, because nobody could renew it while the service was away.
        """
        found = await self._connection.send("HGETALL", self._keys.run_leases)
        now = clock.now()
        lapsed, old = {}, []
        for run, text in zip(found[::2], found[1::2], strict=True):
            lease = json.loads(text)
            if now - lease["ends_at"] > _LEASE_KEPT_S:
                old.append(run)
            elif now > lease["ends_at"] and healthy_for_s >= lease["ttl_s"]:
                lapsed[run.decode()] = float(lease["ends_at"])
        if old:
            await self._connection.send("HDEL", self._keys.run_leases, *old)
        return lapsed

    # ---- starts

    async def started(self, start: str) -> str | None:
        """The sid with which this start was answered recently, or None."""
        sid = await self._connection.script(_KNOWN, [self._keys.start(_digest(start))], [_TAKEN])
        return None if sid is None else str(sid.decode())

    async def answer(self, start: str, sid: str) -> str:
        """The sid to answer the start with: `sid`, or that of a concurrent request that was first."""
        claimed = await self._connection.script(
            _CLAIM, [self._keys.start(_digest(start))], [sid, round(1000 * _START_S), _TAKEN]
        )
        return str(claimed.decode())

    async def forget(self, start: str, sid: str) -> None:
        """The session of this start is over; the start may create another one."""
        await self._connection.script(_FORGET, [self._keys.start(_digest(start))], [sid, _TAKEN])

    async def give_back(self, start: str, sid: str) -> bool:
        """Forget the start, whose client has gone; False: another request has been answered with `sid` meanwhile."""
        given = await self._connection.script(_GIVE_BACK, [self._keys.start(_digest(start))], [sid, _TAKEN])
        return bool(given)

    # ---- sessions of other nodes

    async def ask_to_end(self, node: str, sids: list[str]) -> None:
        """Ask a node to end these sessions of its own."""
        key = self._keys.ends(node)
        await self._connection.send("RPUSH", key, *sids)
        await self._connection.send("PEXPIRE", key, round(1000 * _ASKED_S))

    async def take_end_requests(self) -> list[str]:
        """Take the requests to end sessions of this node."""
        found = await self._connection.send("LPOP", self._keys.ends(self._node), _AT_A_TIME)
        return [sid.decode() for sid in found or []]


def _digest(start: str) -> str:
    """Hash for use in a key: keys show up where values do not (slow log, key lists)."""
    return hashlib.sha256(start.encode("utf-8", "surrogatepass")).hexdigest()
