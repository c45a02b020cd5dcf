"""One action's turn on a session, in two exchanges with Redis.

`Turns.turn` takes the lease, reads the session and records the action as in flight in one script; `Turn.acknowledge`
writes the journal, the counters and the idempotency key and releases the lease in another.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from sandbox_server.errors import StateUnavailable
from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.state.acknowledged import AcknowledgedActions
from sandbox_server.state.codec import action_of, dump, flat, in_flight_of, session_of
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.state.leases import TAKE, Lease, Leases

LIVE = "live"

# KEYS: lock, boots, session, inflight, replies, journal. ARGV: token, lease, inflight, idempotency key, state `live`,
# this node -> {held, session, stored action, former inflight}; {-1} while another holds the lease
_BEGIN = Script(
    TAKE
    + """
local session = redis.call('HGETALL', KEYS[3])
if ARGV[4] ~= '' then
  local index = redis.call('HGET', KEYS[5], ARGV[4])
  if index then return {0, session, redis.call('LINDEX', KEYS[6], index), false} end
end
local at = redis.call('HMGET', KEYS[3], 'state', 'node')
if at[1] ~= ARGV[5] or at[2] ~= ARGV[6] then return {0, session, false, false} end
if not take(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return {-1} end
local former = redis.call('GET', KEYS[4])
if former == ARGV[3] then former = false end
redis.call('SET', KEYS[4], ARGV[3], 'PX', redis.call('PTTL', KEYS[3]))
return {1, session, false, former}
"""
)
# KEYS: lock, session, inflight, journal, replies, pending. ARGV: token, seq, action, idempotency key, node, fields...
# -> 1: acknowledged; 0: another action has this seq, or the session belongs to another node, or another server has the
# lease: it may be about to take the session over, without this action. If Redis has lost the session meanwhile, the
# action still reaches SQL.
_ACKNOWLEDGE = Script("""
local at = redis.call('HMGET', KEYS[2], 'actions', 'node')
local seq, count = tonumber(ARGV[2]), tonumber(at[1])
if at[2] and at[2] ~= ARGV[5] then return 0 end
local repeated = count == seq and redis.call('LINDEX', KEYS[4], -1) == ARGV[3]
if count and count ~= seq - 1 and not repeated then return 0 end
if not repeated then
  local holder = redis.call('GET', KEYS[1])
  if holder and holder ~= ARGV[1] then return 0 end
  redis.call('XADD', KEYS[6], '*', 'a', ARGV[3])
  if count then
    local ttl = redis.call('PTTL', KEYS[2])
    local length = redis.call('RPUSH', KEYS[4], ARGV[3])
    redis.call('PEXPIRE', KEYS[4], ttl)
    if ARGV[4] ~= '' then
      redis.call('HSET', KEYS[5], ARGV[4], length - 1)
      redis.call('PEXPIRE', KEYS[5], ttl)
    end
    redis.call('HSET', KEYS[2], 'actions', seq, unpack(ARGV, 6))
  end
end
redis.call('DEL', KEYS[3])
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")
# KEYS: lock, inflight. ARGV: token, inflight, former inflight or ""
_WITHDRAW = Script("""
if redis.call('GET', KEYS[2]) == ARGV[2] then
  if ARGV[3] == '' then redis.call('DEL', KEYS[2]) else redis.call('SET', KEYS[2], ARGV[3], 'KEEPTTL') end
end
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


@dataclass(frozen=True, slots=True)
class _Begun:
    record: SessionRecord | None
    stored: ActionRecord | None
    interrupted: InFlight | None


_NOTHING_BEGAN = Lease("", "")
_LARGE = 1 << 20
"""An action with more characters is sent to Redis only after a look whether its session is on this node."""


class Turn:
    """One action's right to act on a session."""

    def __init__(self, turns: "Turns", lease: Lease, begun: _Begun, in_flight: InFlight) -> None:
        self.record = begun.record
        """The current session; None: unknown. Nothing may run unless it is live and on this node."""
        self.stored = begun.stored
        """The action already stored under this idempotency key: repeat its observation and run nothing."""
        self.interrupted = begun.interrupted
        """An action that was in flight when a server died, or that failed without being acknowledged."""
        self._turns = turns
        self._lease = lease
        self._in_flight = in_flight

    @property
    def may_run(self) -> bool:
        """Whether this turn holds the session, which is live, and the action is new."""
        return self._lease.held

    async def acknowledge(
        self,
        action: ActionRecord,
        *,
        cwd: str,
        talk_turns: int,
        timings_s: Mapping[str, float],
        more: Mapping[str, object] | None = None,
    ) -> None:
        """Store the action, which cannot be lost afterwards, and end the turn: the next request may act.

        `action.seq` is `record.actions + 1`; `timings_s` replaces the record's. The record's notice is cleared,
        unless `more`, further fields of the record, has another one.

        Raises:
            StateUnavailable: Redis does not answer, or another server acted meanwhile because the lease expired;
                the action is not acknowledged.

        """
        changes = {
            "cwd": cwd,
            "talk_turns": talk_turns,
            "timings_s": timings_s,
            "notice": "",
            "differences": 0,
            **(more or {}),
        }
        await self._turns.acknowledge(self._lease, action, changes)

    async def withdraw(self, sid: str) -> None:
        """End the turn as if the action had never begun: nothing of it has run. Raises StateUnavailable."""
        await self._turns.withdraw(self._lease, sid, self._in_flight, self.interrupted)


class Turns:
    """Gives turns to the requests of one server."""

    def __init__(
        self, connection: Connection, keys: Keys, leases: Leases, acknowledged: AcknowledgedActions, *, node: str
    ) -> None:
        self._acknowledged = acknowledged
        self._connection = connection
        self._keys = keys
        self._leases = leases
        self._node = node

    @contextlib.asynccontextmanager
    async def turn(
        self, sid: str, in_flight: InFlight, *, idempotency_key: str = "", wait_s: float
    ) -> AsyncIterator[Turn]:
        """Hold the session for one action and record the action as in flight.

        Yields at once, without holding or recording anything, if the session is not live, if it belongs to another node
        or if the idempotency key is known (see `Turn`). If the block ends without `acknowledge`, the session is
        released, and the next turn finds the action as `interrupted`.

        Raises:
            SessionBusy: not acquired within `wait_s` seconds. StateUnavailable.

        """
        taken = self._leases.is_taken(sid)
        if taken or len(in_flight.content) > _LARGE:
            record = session_of(await self._connection.send("HGETALL", self._keys.session(sid)))
            if record is None or record.node != self._node or (taken and record.state != LIVE):
                yield Turn(self, _NOTHING_BEGAN, _Begun(record, None, None), in_flight)
                return
        keys = self._keys
        names = [keys.lock(sid), keys.boots, keys.session(sid), keys.in_flight(sid), keys.replies(sid)]
        text = dump(in_flight)

        async def begin(lease: Lease) -> _Begun | None:
            answer = await self._connection.script(
                _BEGIN,
                [*names, keys.journal(sid)],
                [lease.token, self._leases.lease_ms, text, idempotency_key, LIVE, self._node],
            )
            if answer[0] == -1:
                return None
            lease.held = answer[0] == 1
            _, session, stored, former = answer
            return _Begun(
                session_of(session),
                None if stored is None else action_of(stored),
                None if former is None else in_flight_of(former),
            )

        async with self._leases.hold(sid, wait_s, begin) as (lease, begun):
            yield Turn(self, lease, begun, in_flight)

    async def acknowledge(self, lease: Lease, action: ActionRecord, changes: Mapping[str, object]) -> None:
        """See `Turn.acknowledge`; `changes` are fields of the session."""
        keys, sid = self._keys, action.sid
        names = [of(sid) for of in (keys.session, keys.in_flight, keys.journal, keys.replies)]
        self._leases.settle(lease)
        touched_at = action.started_at + action.duration_s
        written = await self._connection.script(
            _ACKNOWLEDGE,
            [lease.key, *names, keys.pending(self._node)],
            [
                lease.token,
                action.seq,
                dump(action),
                action.idempotency_key,
                self._node,
                *flat({**changes, "touched_at": touched_at}),
            ],
        )
        if not written:
            raise StateUnavailable(f"Session {sid}: another server acted meanwhile; action {action.seq} is not kept.")
        lease.held = False
        self._acknowledged.add(action)

    async def withdraw(self, lease: Lease, sid: str, in_flight: InFlight, former: InFlight | None) -> None:
        """See `Turn.withdraw`."""
        self._leases.settle(lease)
        before = "" if former is None else dump(former)
        await self._connection.script(
            _WITHDRAW, [lease.key, self._keys.in_flight(sid)], [lease.token, dump(in_flight), before]
        )
        lease.held = False
