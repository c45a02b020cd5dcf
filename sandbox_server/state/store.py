"""Sessions in Redis, with their locks and journals, as all replicas see them."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from sandbox_server import clock
from sandbox_server.lifecycle import OVER
from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.slices import sliced
from sandbox_server.state.acknowledged import AcknowledgedActions
from sandbox_server.state.codec import action_of, dump, flat, in_flight_of, session_of, whole
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.history import RedisEditorHistory
from sandbox_server.state.image_uses import ImageUses
from sandbox_server.state.keys import Keys
from sandbox_server.state.leases import Lease, Leases
from sandbox_server.state.turns import Turn, Turns
from sandbox_server.tasks import Loops

_TOGETHER = 50  # sessions read in one exchange; actions would have to wait for an exchange about thousands
_SHORT, _SHORT_BYTES = 200, 256 << 10  # actions and bytes; writing a longer journal in one script would delay actions
JOURNAL_AFTER_END_S = 3600.0
"""Seconds; for late retries with an idempotency key. SQL keeps the actions permanently."""

_PUT = Script("""
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[2])
redis.call(ARGV[4] == '1' and 'SREM' or 'SADD', KEYS[2], ARGV[3])
return 1
""")
_DROP = Script("redis.call('SREM', KEYS[2], ARGV[1]) return redis.call('DEL', KEYS[1])")
_TOUCH = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
""")
# KEYS: journal, replies, pending. ARGV: their TTL, "1" if SQL lacks the actions, each action and its idempotency key
_REFILL = Script("""
redis.call('DEL', KEYS[1], KEYS[2])
for at = 3, #ARGV, 2 do
  redis.call('RPUSH', KEYS[1], ARGV[at])
  if ARGV[2] == '1' then redis.call('XADD', KEYS[3], '*', 'a', ARGV[at]) end
  if ARGV[at + 1] ~= '' then redis.call('HSET', KEYS[2], ARGV[at + 1], (at - 3) / 2) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 1
""")
# KEYS: session, inflight, undo, undotext, journal, replies
# ARGV: sid, prefix of the live sets, "1" for a final state, its TTL, the journal's TTL, sources "|a|b|", its node and
# container as the caller knows them, fields...
_MOVE = Script("""
local old = redis.call('HMGET', KEYS[1], 'state', 'node', 'container_id')
if not old[1] or not string.find(ARGV[6], '|' .. old[1] .. '|', 1, true) then return 0 end
if old[2] ~= ARGV[7] or old[3] ~= ARGV[8] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 9))
if ARGV[3] == '1' then
  redis.call('SREM', ARGV[2] .. old[2], ARGV[1])
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('PEXPIRE', KEYS[5], ARGV[5])
  redis.call('PEXPIRE', KEYS[6], ARGV[5])
end
return 1
""")
# KEYS: session, live of the former node, live of the new one, nodes, inflight. ARGV: sid, new node, new container,
# former node, container, state and number of actions, fields... -> 0: the session has changed since
_ADOPT = Script("""
local now = redis.call('HMGET', KEYS[1], 'node', 'container_id', 'state', 'actions')
if now[1] == ARGV[2] and now[2] == ARGV[3] then return 1 end
for i = 1, 4 do
  if now[i] ~= ARGV[i + 3] then return 0 end
end
redis.call('HSET', KEYS[1], unpack(ARGV, 8))
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('SADD', KEYS[4], ARGV[2])
redis.call('DEL', KEYS[5])
return 1
""")


class Store:
    """One server's view of Redis. Call `open` first and `close` last."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        *,
        node: str,
        lock_lease_s: float,
        result_ttl_s: float,
        loops: Loops | None = None,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._node = node
        self._result_ttl_s = result_ttl_s
        self._leases = Leases(connection, keys, node=node, lease_s=lock_lease_s, loops=loops)
        self._listed: dict[bytes, tuple[Sequence[bytes], SessionRecord | None]] = {}
        """Sid -> what Redis had of it when the sessions of this node were last listed, and its record."""
        self.acknowledged = AcknowledgedActions()
        """The actions that this process has acknowledged."""
        self._turns = Turns(connection, keys, self._leases, self.acknowledged, node=node)

    @property
    def boot(self) -> str:
        """Random id of this server process."""
        return self._leases.boot

    async def open(self) -> None:
        """Register this boot of the node, which frees all locks of its former boots."""
        await self._leases.open()

    async def close(self) -> None:
        """Stop renewing leases; the owner of the connection closes it."""
        await self._leases.close()

    async def time(self) -> float:
        """Redis's clock, in Unix seconds."""
        seconds, micros = await self._connection.send("TIME")
        return int(seconds) + int(micros) / 1e6

    async def check(self) -> None:
        """Raise StateUnavailable if Redis does not answer in time, or takes no writes: it is full, or a replica."""
        await self._connection.check(self._keys.written(self._node))

    async def put_session(self, record: SessionRecord) -> None:
        """Write a session, new or rebuilt, replacing any former record."""
        ended = record.state in OVER
        left_s = 0.0 if ended else max(0.0, record.deadline - clock.now())
        await self._connection.script(
            _PUT,
            [self._keys.session(record.sid), self._keys.live(record.node), self._keys.nodes],
            [_ms(left_s + self._result_ttl_s), record.node, record.sid, "1" if ended else "0", *whole(record)],
        )

    async def drop(self, sid: str) -> None:
        """Remove the session as if it had never been written; for a start that nobody waits for any more."""
        await self._connection.script(_DROP, [self._keys.session(sid), self._keys.live(self._node)], [sid])

    async def rebuild(self, record: SessionRecord, actions: Sequence[ActionRecord], *, to_sql: bool = False) -> None:
        """Write a session with its journal and idempotency keys, replacing what Redis has of it.

        `to_sql`: SQL does not have the actions yet; they are moved there like acknowledged ones.
        """
        journal, replies = self._keys.journal(record.sid), self._keys.replies(record.sid)
        ttl_ms = _ms(max(0.0, record.deadline - clock.now()) + self._result_ttl_s)
        pending, dumped = self._keys.pending(self._node), [dump(action) for action in actions]
        if sum(map(len, dumped)) <= _SHORT_BYTES and len(dumped) <= _SHORT:
            words = [
                word for pair in zip(dumped, (one.idempotency_key for one in actions), strict=True) for word in pair
            ]
            await self._connection.script(
                _REFILL, [journal, replies, pending], [ttl_ms, "1" if to_sql else "0", *words]
            )
        else:
            async with self._connection.redis.pipeline() as batch:
                batch.delete(journal, replies)
                for index, (action, text) in enumerate(zip(actions, dumped, strict=True)):
                    batch.rpush(journal, text)
                    if to_sql:
                        batch.xadd(pending, {"a": text})
                    if action.idempotency_key:
                        batch.hset(replies, action.idempotency_key, str(index))
                batch.pexpire(journal, ttl_ms)
                batch.pexpire(replies, ttl_ms)
                await self._connection.run(batch.execute())
        await self.put_session(record)  # last, so that no action can come before the journal is complete

    async def session(self, sid: str) -> SessionRecord | None:
        """The session, or None if unknown."""
        return session_of(await self._connection.send("HGETALL", self._keys.session(sid)))

    async def interrupted(self, sid: str) -> bool:
        """Whether an action of the session began and was never acknowledged; the next observation must say so."""
        return bool(await self._connection.send("EXISTS", self._keys.in_flight(sid)))

    async def settled(self, sid: str, actions: Sequence[ActionRecord]) -> None:
        """Forget the action in flight if it is one of `actions`, which are acknowledged.

        Redis may have come back with an older copy of its data, in which the action still runs. The caller holds the
        session's lease.
        """
        stored = await self._connection.send("GET", self._keys.in_flight(sid))
        if stored is None:
            return
        began = in_flight_of(stored)
        if any((it.content, it.idempotency_key) == (began.content, began.idempotency_key) for it in actions):
            await self._connection.send("DEL", self._keys.in_flight(sid))

    async def touch(self, sid: str) -> bool:
        """Restart the session's idle time; False if the session is unknown."""
        return bool(await self._connection.script(_TOUCH, [self._keys.session(sid)], flat({"touched_at": clock.now()})))

    async def move(self, record: SessionRecord, new_state: str, sources: frozenset[str], **fields: object) -> bool:
        """Change the state from one of `sources` to `new_state`; False: nothing was changed.

        Nothing is changed if the state is none of `sources`, or if the session's node or container differs from
        `record`: the session may have continued elsewhere while the caller was suspended and lost its lease.

        In an ended state the session leaves `live` and loses its editor history; the rest is kept for a while.
        """
        keys, sid = self._keys, record.sid
        ttl_s = self._result_ttl_s
        moved = await self._connection.script(
            _MOVE,
            [of(sid) for of in (keys.session, keys.in_flight, keys.undo, keys.undo_text, keys.journal, keys.replies)],
            [
                sid,
                keys.live(""),
                "1" if new_state in OVER else "0",
                _ms(ttl_s),
                _ms(min(ttl_s, JOURNAL_AFTER_END_S)),
                "|" + "|".join(sorted(sources)) + "|",
                record.node,
                record.container_id,
                *flat({**fields, "state": new_state}),
            ],
        )
        if moved and new_state in OVER:
            self.acknowledged.forget(sid)
        return bool(moved)

    async def adopt(self, record: SessionRecord, former: SessionRecord) -> bool:
        """Move the session from a dead node to `record.node`; False: the session has changed since `former`.

        Then another node has taken it, or its own node is back and has acted in it or ended it. The action in flight is
        dropped: it died with the former node.
        """
        keys, sid = self._keys, record.sid
        taken = await self._connection.script(
            _ADOPT,
            [keys.session(sid), keys.live(former.node), keys.live(record.node), keys.nodes, keys.in_flight(sid)],
            [
                sid,
                record.node,
                record.container_id,
                former.node,
                former.container_id,
                former.state,
                former.actions,
                *whole(record),
            ],
        )
        return bool(taken)

    async def live(self, node: str | None = None) -> list[SessionRecord]:
        """The sessions of a node, or of all nodes, that are not ended or lost."""
        run, redis = self._connection.run, self._connection.redis
        nodes = [node.encode()] if node is not None else sorted(await run(redis.smembers(self._keys.nodes)))
        found: list[SessionRecord] = []
        for name in nodes:
            live = self._keys.live(name.decode())
            sids = sorted(await run(redis.smembers(live)))
            records = await self._records(sids)
            found += [record for record in records if record is not None]
            gone = [sid for sid, record in zip(sids, records, strict=True) if record is None]
            if gone:  # their records expired: the node was away for longer than records are kept
                await run(redis.srem(live, *gone))
        return found

    async def _records(self, sids: Sequence[bytes]) -> list[SessionRecord | None]:
        """One for each sid; a session that has not changed since the last list is not parsed again."""
        listed: dict[bytes, tuple[Sequence[bytes], SessionRecord | None]] = {}
        for at in range(0, len(sids), _TOGETHER):
            some = sids[at : at + _TOGETHER]
            found = await self._connection.send_all([("HGETALL", self._keys.session(sid.decode())) for sid in some])
            for sid, stored in zip(some, found, strict=True):
                known = self._listed.get(sid)
                listed[sid] = known if known is not None and known[0] == stored else (stored, session_of(stored))
        self._listed = listed
        return [record for _, record in listed.values()]

    async def other_nodes(self) -> list[str]:
        """The other nodes that ever had a session."""
        names = await self._connection.run(self._connection.redis.smembers(self._keys.nodes))
        return sorted({name.decode() for name in names} - {self._node})

    @contextlib.asynccontextmanager
    async def lock(self, sid: str, wait_s: float) -> AsyncIterator[None]:
        """Hold the session exclusively, on this server and all others.

        Raises:
            SessionBusy: not acquired within `wait_s` seconds. StateUnavailable.

        """
        async with self._leases.hold(sid, wait_s, self._leases.lock):
            yield

    async def claim(self, name: str) -> Lease | None:
        """Claim the task `name` for this server, until `unclaim`; None: another live server has it.

        Only one caller per process may try at a time. Raises StateUnavailable.
        """
        return await self._leases.take(name)

    async def unclaim(self, claim: Lease) -> None:
        """Release the claim."""
        await self._leases.give_back(claim)

    def turn(
        self, sid: str, in_flight: InFlight, *, idempotency_key: str = "", wait_s: float
    ) -> AbstractAsyncContextManager[Turn]:
        """See `state.turns.Turns.turn`."""
        return self._turns.turn(sid, in_flight, idempotency_key=idempotency_key, wait_s=wait_s)

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """The acknowledged actions in Redis, oldest first, without the first `after` ones.

        After a loss of Redis they may be fewer than `record.actions`, and an hour after the session's end there are
        none; SQL has them all.
        """
        last = -1 if limit is None else after + limit - 1
        texts = await self._connection.run(self._connection.redis.lrange(self._keys.journal(sid), after, last))
        return await sliced(map(action_of, texts))  # a text may have 30 MB

    def history(self, sid: str, container_id: str) -> RedisEditorHistory:
        """The editor's undo stacks of a session, for one of its containers."""
        return RedisEditorHistory(self._connection, self._keys, sid, container_id)

    def image_uses(self) -> ImageUses:
        """Times of last use of this node's images."""
        return ImageUses(self._connection, self._keys, node=self._node)


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
