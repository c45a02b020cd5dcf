"""The editor's undo stacks in Redis, so that they outlive the server and are available on every replica.

Each session's stacks are bounded by count and by compressed bytes; past a bound the oldest text of any path is dropped,
so a stack only loses its oldest entries. A text that alone exceeds the bound removes its path's whole history, since an
undo that skipped it would restore a state that never existed.

The stacks belong to the container that they were last put for, or else to the session's. So a node that was suspended
while its session continued elsewhere cannot change them.
"""

import asyncio
import hashlib
import secrets
import zlib

from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.state.pipeline import Word

MAX_TEXTS = 256
MAX_BYTES = 16 * 1024 * 1024
_BEFORE_SESSION_MS = 86_400_000  # until the session's own time to live is known
_WORTH_A_THREAD = 64 * 1024
"""Bytes; zlib level 1 takes about 1 ms for this many."""

# Refuses a container that is neither the session's nor the one that the stacks were put for (field `container`).
# KEYS: undo, undotext, session. ARGV: container, ...
_FENCE = """
local owner = redis.call('HGET', KEYS[3], 'container_id')
if owner and owner ~= ARGV[1] and redis.call('HGET', KEYS[2], 'container') ~= ARGV[1] then return 0 end
"""
# ARGV: container, id, digest of the path, compressed text, most texts, most bytes, time to live without a session
_PUSH = Script(
    _FENCE
    + """
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then return 1 end
redis.call('RPUSH', KEYS[1], ARGV[2] .. ':' .. ARGV[3] .. ':' .. #ARGV[4])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
local refs, bytes = redis.call('LRANGE', KEYS[1], 0, -1), 0
for _, ref in ipairs(refs) do bytes = bytes + tonumber(string.match(ref, '%d+$')) end
local count = #refs
for i = 1, #refs do
  if count <= tonumber(ARGV[5]) and bytes <= tonumber(ARGV[6]) then break end
  redis.call('LPOP', KEYS[1])
  redis.call('HDEL', KEYS[2], string.match(refs[i], '^%x+'))
  count, bytes = count - 1, bytes - tonumber(string.match(refs[i], '%d+$'))
end
local ttl = redis.call('PTTL', KEYS[3])
if ttl < 0 then ttl = tonumber(ARGV[7]) end -- a session that is being restored or copied is not there yet
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl)
return 1
"""
)
# KEYS: undo, undotext. ARGV: milliseconds to live, container, refs and texts in turns
_PUT = Script("""
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[2], 'container', ARGV[2])
for i = 3, #ARGV, 2 do
  redis.call('RPUSH', KEYS[1], ARGV[i])
  redis.call('HSET', KEYS[2], string.match(ARGV[i], '^%x+'), ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 1
""")
_GET = Script("""
local found = {}
for _, ref in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  found[#found + 1] = ref
  found[#found + 1] = redis.call('HGET', KEYS[2], string.match(ref, '^%x+')) or ''
end
return found
""")
_TOP = Script("""
local refs = redis.call('LRANGE', KEYS[1], 0, -1)
for i = #refs, 1, -1 do
  local id, digest = string.match(refs[i], '^(%x+):(%x+):')
  if digest == ARGV[1] then return {refs[i], redis.call('HGET', KEYS[2], id)} end
end
return false
""")
_DROP = Script(
    _FENCE
    + """
redis.call('LREM', KEYS[1], -1, ARGV[2])
return redis.call('HDEL', KEYS[2], string.match(ARGV[2], '^%x+'))
"""
)


class RedisEditorHistory:
    """The undo stacks of one session, one per path, as one of its containers sees them."""

    def __init__(self, connection: Connection, keys: Keys, sid: str, container_id: str) -> None:
        self._connection = connection
        self._container_id = container_id
        self._keys = [keys.undo(sid), keys.undo_text(sid), keys.session(sid)]

    async def push(self, path: str, text: str) -> None:
        """Push `text`, the state before an edit, unless the session has left the container. Raises StateUnavailable."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > _WORTH_A_THREAD:
            packed = await asyncio.to_thread(zlib.compress, data, 1)
        else:
            packed = zlib.compress(data, 1)
        args: list[Word] = [self._container_id, secrets.token_hex(8), _digest(path), packed]
        args += [MAX_TEXTS, MAX_BYTES, _BEFORE_SESSION_MS]
        await self._connection.script(_PUSH, self._keys, args)

    async def pop(self, path: str) -> str | None:
        """Remove and return the newest text; None if there is none. Raises StateUnavailable."""
        top = await self._connection.script(_TOP, self._keys[:2], [_digest(path)])
        if top is None:
            return None
        # In two exchanges, so that a repeated exchange does not remove two texts.
        ref, packed = top
        await self._connection.script(_DROP, self._keys, [self._container_id, ref])
        return zlib.decompress(packed).decode("utf-8", "surrogatepass")

    async def clear(self) -> None:
        """Drop all stacks. Raises StateUnavailable."""
        await self._connection.send("DEL", *self._keys[:2])

    async def export(self) -> bytes:
        """All stacks, for `put`. Raises StateUnavailable."""
        found = await self._connection.script(_GET, self._keys[:2], [])
        return b"".join(len(word).to_bytes(4, "big") + word for word in found)

    async def put(self, exported: bytes) -> None:
        """Replace all stacks by exported ones, for a container that is being restored. Raises StateUnavailable.

        b"" stands for no stacks.
        """
        words: list[Word] = [_BEFORE_SESSION_MS, self._container_id]
        at = 0
        while at < len(exported):
            end = at + 4 + int.from_bytes(exported[at : at + 4], "big")
            words.append(exported[at + 4 : end])
            at = end
        await self._connection.script(_PUT, self._keys[:2], words)


def _digest(path: str) -> str:
    return hashlib.sha1(path.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
