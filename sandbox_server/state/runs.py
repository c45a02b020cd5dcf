"""What Redis knows of runs: whose they are, until when they live, and which starts have been answered."""

import hashlib
import json
from collections.abc import Mapping

from sandbox_server import clock
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys

_OWNED_S = 30 * 86400
"""A run that nobody started anything for so long is anybody's again."""
_LEASE_KEPT_S = 2 * 86400
"""Past its end; no session that began before it lives longer."""
_START_S = 900.0
"""A client that sends a start again does so within its own bound, ten minutes."""
_ASKED_S = 600.0
"""Word for a node that does not come to take it."""
_AT_A_TIME = 1000

# KEYS: the start. ARGV: sid, its time to live in ms -> the sid that stands for the start
_CLAIM = Script("""
local known = redis.call('GET', KEYS[1])
if known then return known end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
""")
# KEYS: the start. ARGV: sid
_FORGET = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


class RunState:
    """Every method raises StateUnavailable when Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str) -> None:
        self._connection = connection
        self._keys = keys
        self._node = node

    # ---- whose a run is

    async def claim(self, run: str, owner: str, *, anew: bool = False) -> str:
        """Whose the run is: `owner`'s from now on, unless it was somebody's already; with `anew` in any case."""
        key = self._keys.run_owner(run)
        options = ("EX", _OWNED_S) if anew else ("EX", _OWNED_S, "NX")
        if await self._connection.send("SET", key, owner, *options):
            return owner
        known = await self._connection.send("GET", key)
        return owner if known is None else str(known.decode())

    # ---- until when it lives

    async def keep(self, run: str, ttl_s: float) -> float:
        """The run lives for `ttl_s` more; when that ends, in Unix seconds."""
        ends_at = clock.now() + ttl_s
        lease = json.dumps({"ends_at": ends_at, "ttl_s": ttl_s})
        await self._connection.send("HSET", self._keys.run_leases, run, lease)
        return ends_at

    async def release(self, run: str) -> bool:
        """Nothing is said any more of how long it lives; False: nothing was."""
        return bool(await self._connection.send("HDEL", self._keys.run_leases, run))

    async def lapsed(self, *, clear_for_s: float) -> Mapping[str, float]:
        """Runs whose lease has ended, and when.

        `clear_for_s`: for how long this node has surely been there to take renewals. A lease counts only where that
        is longer than its whole time: while the service was away, nobody could renew it.
        """
        found = await self._connection.send("HGETALL", self._keys.run_leases)
        now = clock.now()
        lapsed, old = {}, []
        for run, text in zip(found[::2], found[1::2], strict=True):
            lease = json.loads(text)
            if now - lease["ends_at"] > _LEASE_KEPT_S:
                old.append(run)
            elif now > lease["ends_at"] and clear_for_s >= lease["ttl_s"]:
                lapsed[run.decode()] = float(lease["ends_at"])
        if old:
            await self._connection.send("HDEL", self._keys.run_leases, *old)
        return lapsed

    # ---- starts

    async def started(self, start: str) -> str | None:
        """The sid that a start of this name was answered with lately."""
        sid = await self._connection.send("GET", self._keys.start(_digest(start)))
        return None if sid is None else str(sid.decode())

    async def answer(self, start: str, sid: str) -> str:
        """The sid that the start is answered with: this one, or another that was quicker."""
        claimed = await self._connection.script(
            _CLAIM, [self._keys.start(_digest(start))], [sid, round(1000 * _START_S)]
        )
        return str(claimed.decode())

    async def forget(self, start: str, sid: str) -> None:
        """The session that the start was answered with is over; the start may begin another."""
        await self._connection.script(_FORGET, [self._keys.start(_digest(start))], [sid])

    # ---- ends on other nodes

    async def ask_to_end(self, node: str, sids: list[str]) -> None:
        """Leave word for a node: these sessions of its are to end."""
        key = self._keys.ends(node)
        await self._connection.send("RPUSH", key, *sids)
        await self._connection.send("PEXPIRE", key, round(1000 * _ASKED_S))

    async def asked(self) -> list[str]:
        """Take the word that others left for this node."""
        found = await self._connection.send("LPOP", self._keys.ends(self._node), _AT_A_TIME)
        return [sid.decode() for sid in found or []]


def _digest(start: str) -> str:
    """Keys are seen in places where values are not."""
    return hashlib.sha256(start.encode("utf-8", "surrogatepass")).hexdigest()
