"""Leases on sessions: within a process requests are served in order, between servers one lease in Redis decides.

A holder's token is `<node>/<boot>/<random>`, and `boots` holds each node's current boot. A lease of an earlier boot was
left by a server that died, and the next caller takes it at once. A lease of a node that never came back expires.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sandbox_server.errors import SessionBusy, StateUnavailable
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.tasks import Loop, Loops
from sandbox_server.telemetry import logger

T = TypeVar("T")
log = logger(__name__)

_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05

# Also used by the script that begins an action. The same token may take the lease twice, since an exchange is sent
# again if its connection breaks. So may another token of the same boot: within a process the queue lets one caller
# try at a time, so a lease still held was left by a caller whose release did not arrive.
TAKE = """
local function take(lock, boots, token, lease_ms)
  local holder = redis.call('GET', lock)
  if holder and holder ~= token then
    local boot, own = string.match(holder, '^(.*)/%x+$'), string.match(token, '^(.*)/%x+$')
    local node = boot and string.match(boot, '^(.*)/%x+$')
    local present = node and redis.call('HGET', boots, node)
    if boot ~= own and (not present or present == boot) then return false end
  end
  redis.call('SET', lock, token, 'PX', lease_ms)
  return true
end
"""
_LOCK = Script(TAKE + "return take(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) and 1 or 0")
# KEYS: lock, boots, session. ARGV: token, lease, this node
_LOCK_AGAIN = Script(
    TAKE
    + """
local node = redis.call('HGET', KEYS[3], 'node')
if node and node ~= ARGV[3] then return 0 end
return take(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) and 1 or 0
"""
)
_RELEASE = Script("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
# -> {leases that another holds, leases that nobody holds}. It never takes a lease: it may arrive after the lease was
# given up, and would then take one that has no holder.
_RENEW = Script("""
local lost, absent = {}, {}
for i, lock in ipairs(KEYS) do
  local holder = redis.call('GET', lock)
  if holder == ARGV[i + 1] then redis.call('PEXPIRE', lock, ARGV[1])
  elseif holder then lost[#lost + 1] = lock
  else absent[#absent + 1] = lock end
end
return {lost, absent}
""")


@dataclass(slots=True)
class Lease:
    """An attempt to hold a session; `held` from its success until it is given up."""

    key: str
    token: str
    held: bool = False


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Leases:
    """The leases of one server process."""

    def __init__(
        self, connection: Connection, keys: Keys, *, node: str, lease_s: float, loops: Loops | None = None
    ) -> None:
        self.lease_ms = max(1, int(lease_s * 1000))
        self._connection = connection
        self._keys = keys
        self._node = node
        self.boot = f"{node}/{secrets.token_hex(8)}"
        self._held: dict[str, Lease] = {}
        self._queues: dict[str, _Queue] = {}
        self._loops = loops or Loops()
        self._renewing: Loop | None = None

    async def open(self) -> None:
        """Make this the node's current boot, which frees the leases of its former boots, and start renewing."""
        await self._connection.send("HSET", self._keys.boots, self._node, self.boot)
        self._renewing = self._loops.start(self.lease_ms / 3000, self._renew, name="leases", at_once=False)

    async def close(self) -> None:
        """Stop renewing leases."""
        if self._renewing is not None:
            await self._renewing.stop()

    async def take(self, name: str) -> Lease | None:
        """Take the lease, or return None at once if another live server has it. It is renewed until `give_back`.

        Only one caller per process may try at a time. Raises StateUnavailable.
        """
        lease = Lease(self._keys.lock(name), f"{self.boot}/{secrets.token_hex(8)}")
        try:
            await self.lock(lease)
        except BaseException:
            await asyncio.shield(self._release(lease))  # the reply was lost, so the lease may have been taken
            raise
        if not lease.held:
            return None
        self._held[lease.token] = lease
        return lease

    async def give_back(self, lease: Lease) -> None:
        """Release the lease."""
        self.settle(lease)
        await self._release(lease)

    async def lock(self, lease: Lease) -> bool | None:
        """An attempt for `hold` that only takes the lease."""
        taken = await self._connection.script(_LOCK, [lease.key, self._keys.boots], [lease.token, self.lease_ms])
        lease.held = taken == 1
        return True if lease.held else None

    def settle(self, lease: Lease) -> None:
        """Stop renewing the lease, which is about to be released."""
        self._held.pop(lease.token, None)

    def is_taken(self, sid: str) -> bool:
        """Whether somebody in this process holds the sid or waits for it."""
        return sid in self._queues

    @contextlib.asynccontextmanager
    async def hold(
        self, sid: str, wait_s: float, attempt: Callable[[Lease], Awaitable[T | None]]
    ) -> AsyncIterator[tuple[Lease, T]]:
        """Hold `sid` during the block, and yield the lease and the value of `attempt`.

        Waits up to `wait_s` seconds in all: for the callers before this one, then until `attempt`, which is repeated,
        returns a value. `attempt` takes the lease and sets its `held`.

        Raises:
            SessionBusy: not in time.
            StateUnavailable: Redis does not answer.

        """
        lease = Lease(self._keys.lock(sid), f"{self.boot}/{secrets.token_hex(8)}")
        queue = self._queues.setdefault(sid, _Queue())
        queue.users += 1
        try:
            try:
                async with asyncio.timeout(wait_s) as bound:
                    await queue.lock.acquire()
                    try:
                        value = await self._try(lease, attempt)
                    except BaseException:
                        queue.lock.release()
                        raise
            except TimeoutError:
                if not bound.expired():
                    raise
                raise SessionBusy(f"Session {sid} is busy with another request; waited {wait_s:g} s.") from None
            try:
                yield lease, value
            finally:
                try:
                    self.settle(lease)
                    if lease.held:
                        await self._release(lease)
                finally:
                    queue.lock.release()
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[sid]

    async def _try(self, lease: Lease, attempt: Callable[[Lease], Awaitable[T | None]]) -> T:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                value = await attempt(lease)
            except BaseException:
                # the reply was lost, so the lease may have been taken
                await asyncio.shield(self._release(lease))
                raise
            if value is not None:
                if lease.held:
                    self._held[lease.token] = lease
                return value
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _release(self, lease: Lease) -> None:
        lease.held = False
        try:
            await self._connection.script(_RELEASE, [lease.key], [lease.token])
        except StateUnavailable as error:  # it expires, since nobody renews it
            log.warning("lease not released", key=lease.key, error=error.detail)

    async def _renew(self) -> None:
        held = list(self._held.values())
        if not held:
            return
        lost, absent = await self._connection.script(
            _RENEW, [lease.key for lease in held], [self.lease_ms, *(lease.token for lease in held)]
        )
        await self._take_again([lease for lease in held if lease.key.encode() in absent])
        for key in lost:
            log.error("lease lost to another server", key=key.decode())

    async def _take_again(self, expired: list[Lease]) -> None:
        """Take leases again that expired while this process or Redis was stopped, if nobody has taken them.

        Leases of sessions that now belong to another node are not taken: what this process still does in them must not
        delay that node's requests.
        """
        for lease in expired:
            if lease.token in self._held:  # otherwise it was given up meanwhile
                session = self._keys.session(lease.key.removeprefix(self._keys.lock("")))
                await self._connection.script(
                    _LOCK_AGAIN,
                    [lease.key, self._keys.boots, session],
                    [lease.token, self.lease_ms, self._node],
                )
                if lease.token not in self._held:
                    await self._release(lease)
