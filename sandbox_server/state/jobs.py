"""Gradings as jobs, by repid's Redis broker: one stream per node, read by that node and by nodes that help it.

A job is a sid, delivered at least once. Its entry stays in the stream until the work is done. Its worker renews the
entry every third of `lost_after_s`. If the worker stops doing so, another reader of the stream takes the entry over, by
Redis's clock.

docs/decisions/0001-grading-jobs.md says why repid was chosen, and what it lacks. This module deletes acknowledged
entries itself. repid stops taking over the jobs of dead readers when a connection breaks, and its reader group is
missing from a Redis that comes back empty. So `tend` checks whether takeovers happen, and subscribes again if not.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from repid.connections.abc import ReceivedMessageT, SubscriberT
from repid.connections.redis import RedisServer
from repid.data import MessageData

from sandbox_server.errors import StateUnavailable
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.tasks import TaskSet
from sandbox_server.telemetry import logger

log = logger(__name__)
# Callers report an unavailable Redis themselves, once, and not with the library's traceback every second.
logging.getLogger("repid").addHandler(logging.NullHandler())
logging.getLogger("repid").propagate = False

_GROUP = "graders"
_BLOCK_MS = 1000  # below redis-py's bound on reading a socket, 5 s
_SUBMITTED_S = 600.0
_PAGE = 1000
_CLAIMS = 4  # takeover passes after which a new reader counts as one that does not claim
_READER_KEPT_MS = 3_600_000

Work = Callable[[str, str], Awaitable[bool]]
"""(sid, node of the stream) -> whether it is done; if not, it is returned to the stream's readers."""

# -> number of entries that were taken but not renewed for ARGV[2] ms. Readers without entries that were idle for
# ARGV[3] ms are deleted: each subscription uses a new name.
_TEND = Script("""
redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local about = {}
  for i = 1, #fields, 2 do about[fields[i]] = fields[i + 1] end
  if about.pending == 0 and about.idle > tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
  end
end
return #redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[2], '-', '+', 1)
""")
_WAITING = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end
local taken = redis.pcall('XPENDING', KEYS[1], ARGV[1])
return {redis.call('XLEN', KEYS[1]), taken.err and 0 or taken[1]}
""")
_FORGET = Script("return redis.call('XLEN', KEYS[1]) == 0 and redis.call('DEL', KEYS[1]) or 0")


@dataclass(eq=False, slots=True)
class _Reader:
    """A subscription of this server to one node's stream."""

    node: str
    subscriber: SubscriberT
    full: bool = False
    """Paused until there is room."""
    since: float = field(default_factory=time.monotonic)
    at_work: set[asyncio.Task[None]] = field(default_factory=set)


class GradingJobs:
    """One server's view of all jobs. Methods raise StateUnavailable if Redis does not answer."""

    def __init__(self, url: str, connection: Connection, keys: Keys, *, node: str, lost_after_s: float) -> None:
        """A job that its server has not renewed for `lost_after_s` seconds is taken over by another."""
        self._connection = connection
        self._keys = keys
        self._node = node
        self._lost_after_s = lost_after_s
        self._claim_every_s = max(0.1, min(2.0, lost_after_s / 4))
        self._server = RedisServer(
            url,
            stream_name_strategy=keys.gradings,
            consumer_group_strategy=lambda _: _GROUP,
            dlq_stream_strategy=None,
            block_ms=_BLOCK_MS,
            batch_size=1,  # entries read but not started would have no worker
            claim_interval=self._claim_every_s,
            min_idle_ms=int(lost_after_s * 1000),
        )
        self._readers: dict[str, _Reader] = {}
        self._later = TaskSet("grading jobs")
        self._work: Work | None = None
        self._room: Callable[[], bool] = lambda: True

    async def open(self, work: Work, room: Callable[[], bool]) -> None:
        """Run `work` on this node's jobs while `room()` is true, and on those of the nodes in `helped`."""
        self._work, self._room = work, room
        await self._connection.run(self._server.connect())
        await self.help(self._node)

    async def close(self) -> None:
        """Return the jobs under way; others take them at once."""
        self._work = None
        for reader in self._readers.values():
            await reader.subscriber.pause()
        tasks = [task for reader in self._readers.values() for task in reader.at_work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Close the subscribers here: each removes itself from the list that the library's `disconnect` iterates, which
        # therefore skips every second one.
        ends = (reader.subscriber.close() for reader in self._readers.values())
        await asyncio.gather(*ends, *self._later, return_exceptions=True)
        await self._server.disconnect()

    async def submit(self, sid: str, node: str, *, again: bool = False) -> None:
        """Have the session graded by `node` or a node that helps it; no effect if it is already submitted.

        `again`: the caller knows that no stream has it.
        """
        marked = await self._connection.send(
            "SET", self._keys.submitted(sid), node, "PX", int(_SUBMITTED_S * 1000), *([] if again else ["NX"])
        )
        if marked is not None:
            message = MessageData(payload=sid.encode())
            await self._connection.run(self._server.publish(channel=node, message=message))

    async def submitted(self, nodes: list[str]) -> set[str]:
        """All sids in the streams of `nodes`."""
        found: set[str] = set()
        for node in nodes:
            start = "-"
            while entries := await self._connection.send(
                "XRANGE", self._keys.gradings(node), start, "+", "COUNT", _PAGE
            ):
                for _, words in entries:
                    found.add(dict(zip(words[::2], words[1::2], strict=True))[b"payload"].decode())
                start = "(" + entries[-1][0].decode()
        return found

    async def nodes(self) -> set[str]:
        """All nodes that may have a stream."""
        return {name.decode() for name in await self._connection.send("SMEMBERS", self._keys.nodes)} | {self._node}

    async def waiting(self, node: str) -> tuple[int, int]:
        """(jobs not taken, jobs taken) of a node's stream."""
        length, taken = await self._connection.script(_WAITING, [self._keys.gradings(node)], [_GROUP])
        return max(0, length - taken), taken

    async def help(self, node: str) -> None:
        """Read that node's stream too, starting with the jobs of its dead readers."""
        if (reader := self._readers.get(node)) is None:
            self._readers[node] = await self._subscribed(node)
        else:
            reader.full = False
            await reader.subscriber.resume()

    async def hold(self, node: str) -> None:
        """Take no more jobs of that node for now; jobs under way continue."""
        if reader := self._readers.get(node):
            reader.full = False
            await reader.subscriber.pause()

    async def leave(self, node: str) -> None:
        """Stop reading that node's stream; jobs under way continue."""
        if reader := self._readers.pop(node, None):
            await reader.subscriber.pause()
            self._later.start(self._ended(reader))

    async def forget(self, node: str) -> None:
        """Delete the stream of a node that is gone, if it is empty."""
        await self.leave(node)
        await self._connection.script(_FORGET, [self._keys.gradings(node)], [])

    @property
    def helped(self) -> set[str]:
        """The other nodes whose streams are read here."""
        return self._readers.keys() - {self._node}

    def behind(self) -> bool:
        """Whether this node has not read all of its own jobs, for lack of room."""
        reader = self._readers.get(self._node)
        return reader is None or reader.full

    def freed(self) -> None:
        """Call when there may be room again."""
        if self._room():
            for reader in self._readers.values():
                if reader.full:
                    reader.full = False
                    self._later.start(self._resume(reader))

    async def tend(self) -> None:
        """Repair what the library does not repair after an outage of Redis."""
        for node, reader in list(self._readers.items()):
            idle_ms = int(2000 * self._lost_after_s)
            forgotten = await self._connection.script(
                _TEND, [self._keys.gradings(node)], [_GROUP, idle_ms, _READER_KEPT_MS]
            )
            # A new reader needs some time to take over what it found.
            if forgotten and time.monotonic() - reader.since > _CLAIMS * self._claim_every_s:
                log.warning(
                    "jobs of dead workers were not taken over; subscribing to their stream again", stream_of=node
                )
                await self.leave(node)
                await self.help(node)

    async def _subscribed(self, node: str) -> _Reader:
        readers: list[_Reader] = []  # the callback may run before the reader exists

        async def delivered(message: ReceivedMessageT) -> None:
            await self._delivered(readers[0], message)

        subscriber = await self._connection.run(self._server.subscribe(channels_to_callbacks={node: delivered}))
        readers.append(_Reader(node, subscriber))
        return readers[0]

    async def _delivered(self, reader: _Reader, message: ReceivedMessageT) -> None:
        if self._work is None:
            await self._settle(reader, message, done=False)
            return
        if not self._room():
            reader.full = True
            await reader.subscriber.pause()
        task = asyncio.current_task()
        assert task is not None
        reader.at_work.add(task)
        keeping = asyncio.create_task(self._keep(message))
        done: bool | None = False
        try:
            done = await self._work(message.payload.decode(), reader.node)
        except Exception:
            log.exception("a grading job failed; it will be delivered again", sid=message.payload.decode())
            done = None
        finally:
            keeping.cancel()
            reader.at_work.discard(task)
            if done is not None:
                await self._settle(reader, message, done=done)

    async def _keep(self, message: ReceivedMessageT) -> None:
        while True:
            await asyncio.sleep(self._lost_after_s / 3)
            try:
                await self._connection.run(message.keep_alive())
            except StateUnavailable as error:
                log.warning("a grading job could not be renewed", sid=message.payload.decode(), error=error.detail)

    async def _settle(self, reader: _Reader, message: ReceivedMessageT, *, done: bool) -> None:
        sid = message.payload.decode()
        try:
            if done:
                # Delete the mark first. If the server dies in between, a job without a mark may come twice, but a mark
                # without a job would prevent that the grading is submitted again.
                await self._connection.send("DEL", self._keys.submitted(sid))
                await self._connection.run(message.ack())
            else:
                await self._connection.run(message.reject())
            await self._connection.send("XDEL", self._keys.gradings(reader.node), message.message_id or "")
        except StateUnavailable as error:  # the job will be delivered again, and its grading found done
            log.warning("a grading job could not be settled", sid=sid, error=error.detail)

    async def _ended(self, reader: _Reader) -> None:
        await reader.subscriber.close()

    async def _resume(self, reader: _Reader) -> None:
        await reader.subscriber.resume()
