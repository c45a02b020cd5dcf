"""The records of boxes in Redis, beside those of their sessions; found by sid or by access token."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sandbox_server import clock
from sandbox_server.errors import MalformedRequest
from sandbox_server.records import BoxRecord, SessionRecord
from sandbox_server.state.codec import flat, session_of
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys

_KEY_S = 600.0
"""A client retries a create within its own timeout, a minute or two."""

_PARSED = 1024
"""Number of boxes whose parsed record is cached: every request into a box needs it, and it seldom changes."""

# KEYS: session, box
_BOTH = Script("return {redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2])}")

# KEYS: session, box, token. ARGV: ms to keep all three, now, fields... -> its number of changes; 0: not live, or past
# its deadline
_PROLONG = Script("""
local old = redis.call('HMGET', KEYS[1], 'state', 'deadline')
if old[1] ~= 'live' or tonumber(old[2]) < tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
return redis.call('HINCRBY', KEYS[1], 'changes', 1)
""")


# KEYS: session, box, token. ARGV: ms to keep all three, box, fields... -> its number of changes; 0: not live
_CHANGE = Script("""
if redis.call('HGET', KEYS[1], 'state') ~= 'live' then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('SET', KEYS[2], ARGV[2])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
return redis.call('HINCRBY', KEYS[1], 'changes', 1)
""")

# KEYS: the create. ARGV: what it made, TTL in ms, what an earlier create made and this may replace -> what the create
# is answered with
_CLAIM = Script("""
local known = redis.call('GET', KEYS[1])
if known and known ~= ARGV[3] then return known end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
""")


@dataclass(frozen=True, slots=True)
class CreateKey:
    """The idempotency key of a create."""

    name: str
    """The key together with its owner and the kind of request, so that equal keys of others are different names."""
    request: str
    """The request as a text; a repeated request with the same key must have the same."""

    def stored(self, made: str) -> str:
        """The text to store in Redis: `made`, and a hash of the request."""
        return f"{made}\n{_digest(self.request)}"

    def made_by(self, stored: str) -> str:
        """What was made, by the text from `stored`. Raises MalformedRequest: another request made it."""
        made, _, asked = stored.partition("\n")
        if asked and asked != _digest(self.request):  # a server of an older version stores no hash
            raise MalformedRequest(
                "This Idempotency-Key belongs to another request; use another key. Nothing was created."
            )
        return made


class BoxFacts:
    """The records of boxes. Every method raises StateUnavailable if Redis does not answer."""

    def __init__(self, connection: Connection, keys: Keys, *, result_ttl_s: float) -> None:
        """`result_ttl_s`: how long an ended box is still known, as for sessions."""
        self._connection = connection
        self._keys = keys
        self._result_ttl_s = result_ttl_s
        self._last: dict[str, int] = {}
        """Sid -> number of the last change that this process has acknowledged."""

    def is_behind(self, record: SessionRecord) -> bool:
        """Whether Redis, which has this record, lacks changes of the box that this process has acknowledged."""
        return record.changes < self._last.get(record.sid, 0)

    def settle(self, record: SessionRecord) -> None:
        """Take `record` from Redis as the newest: changes that it lacks are lost."""
        if record.sid in self._last:
            self._last[record.sid] = record.changes

    def keep(self, sids: Iterable[str]) -> None:
        """Forget the changes of all other boxes."""
        kept = set(sids)
        self._last = {sid: last for sid, last in self._last.items() if sid in kept}

    async def put(self, box: BoxRecord, deadline: float) -> None:
        """Write a new, changed or rebuilt box; its session ends at `deadline`."""
        ms = self._kept_ms(deadline)
        await self._connection.send("SET", self._keys.box(box.sid), box.to_json(), "PX", ms)
        await self._connection.send("SET", self._keys.box_token(_digest(box.token)), box.sid, "PX", ms)

    async def with_session(self, sid: str) -> tuple[SessionRecord | None, BoxRecord | None]:
        """The session and its box, read atomically; None: unknown."""
        session, text = await self._connection.script(_BOTH, [self._keys.session(sid), self._keys.box(sid)], [])
        return session_of(session), None if text is None else _parsed(text)

    async def all(self, sids: Sequence[str]) -> dict[str, BoxRecord]:
        """The known boxes among `sids`."""
        if not sids:
            return {}
        texts = await self._connection.send("MGET", *map(self._keys.box, sids))
        return {sid: _parsed(text) for sid, text in zip(sids, texts, strict=True) if text is not None}

    async def of_token(self, token: str) -> str | None:
        """The sid of the box that this access token opens, or None."""
        sid = await self._connection.send("GET", self._keys.box_token(_digest(token)))
        return None if sid is None else str(sid.decode())

    async def prolong(self, box: BoxRecord, deadline: float) -> int:
        """Move the end of the box to `deadline`, earlier or later.

        Returns the number of the box's changes; 0: it has already ended.
        """
        now = clock.now()
        return await self._changed(_PROLONG, box, [self._kept_ms(deadline), now], deadline, {"touched_at": now})

    async def change(self, box: BoxRecord, deadline: float, **more: object) -> int:
        """Write a live box's changes and its new deadline atomically. `more`: further fields of its session.

        Returns the number of the box's changes; 0: it is not live.
        """
        arguments = [self._kept_ms(deadline), box.to_json()]
        return await self._changed(_CHANGE, box, arguments, deadline, {"touched_at": clock.now(), **more})

    async def _changed(
        self, script: Script, box: BoxRecord, arguments: list[Any], deadline: float, more: Mapping[str, object]
    ) -> int:
        keys = [self._keys.session(box.sid), self._keys.box(box.sid), self._keys.box_token(_digest(box.token))]
        changes = int(await self._connection.script(script, keys, [*arguments, *flat({"deadline": deadline, **more})]))
        if changes:
            self._last[box.sid] = changes
        return changes

    async def remember(self, key: CreateKey, made: str, *, instead: str | None = None) -> str:
        """Store that a create with this key made `made` (e.g. a sid), unless a concurrent create was first.

        Returns what the first create made. `instead`: what an earlier create made and `made` may replace, because it
        has ended.

        Raises:
            MalformedRequest: the first create was another request.
        """
        former = "" if instead is None else key.stored(instead)
        claimed = await self._connection.script(
            _CLAIM, [self._keys.box_key(_digest(key.name))], [key.stored(made), round(1000 * _KEY_S), former]
        )
        return key.made_by(claimed.decode())

    async def created_by(self, key: CreateKey) -> str | None:
        """What was recently made by a create with this key, or None.

        Raises:
            MalformedRequest: that create was another request.
        """
        noted = await self._connection.send("GET", self._keys.box_key(_digest(key.name)))
        return None if noted is None else key.made_by(noted.decode())

    async def note_command(self, sid: str, pid: int, text: str) -> None:
        """Note a command that runs in the box, for a server that takes the box over."""
        await self._connection.send("HSET", self._keys.box_runs(sid), str(pid), text)
        await self._connection.send("PEXPIRE", self._keys.box_runs(sid), round(1000 * self._result_ttl_s))

    async def forget_command(self, sid: str, pid: int) -> None:
        """Note that the command has ended."""
        await self._connection.send("HDEL", self._keys.box_runs(sid), str(pid))

    async def commands(self, sid: str) -> dict[int, str]:
        """Process id -> text passed to `note_command`."""
        found = await self._connection.send("HGETALL", self._keys.box_runs(sid))
        return {int(pid): text.decode() for pid, text in zip(found[::2], found[1::2], strict=True)}

    def _kept_ms(self, deadline: float) -> int:
        return max(1, int(1000 * (max(0.0, deadline - clock.now()) + self._result_ttl_s)))


@lru_cache(_PARSED)
def _parsed(text: bytes) -> BoxRecord:
    return BoxRecord.from_json(text)


def _digest(secret: str) -> str:
    """Hash of a secret for use in a key: keys show up in Redis's slow log and in key lists, values do not."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
