"""Moves every acknowledged action from Redis to SQL, soon and without loss.

An entry is removed from Redis only after SQL has it. A server killed in between writes it again after its restart, so
the sink must accept the same (sid, seq) twice.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from sandbox_server import clock
from sandbox_server.errors import InfrastructureError
from sandbox_server.records import ActionRecord
from sandbox_server.state.acknowledged import AcknowledgedActions
from sandbox_server.state.codec import action_of
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.telemetry import logger

log = logger(__name__)

_BATCH_BYTES = 1 << 20
"""Approximate bytes of one write; reading and binding as much blocks the event loop for some 5 ms."""
_BATCH = (8, 256)
"""Minimum and maximum entries of one write; an entry may hold tens of kilobytes."""
_ADOPT_AFTER_S = 60.0
"""Another node's entries are drained too once they are this old: its server has not come back."""
_LONGEST_PAUSE_S = 30.0
_REJECTED_KEPT_S = 7 * 86400


class ActionSink(Protocol):
    """Permanent storage of acknowledged actions."""

    async def add_actions(self, actions: Sequence[ActionRecord]) -> None:
        """Write all or none; an action whose (sid, seq) exists is left unchanged.

        Raises:
            InfrastructureError: the database does not answer; a later call may succeed. Any other exception means
                that one of the actions is at fault.

        """
        ...


class JournalFlusher:
    """Moves the pending entries of one node, and of nodes that are gone, into the sink."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        sink: ActionSink,
        *,
        node: str,
        acknowledged: AcknowledgedActions | None = None,
    ) -> None:
        """`acknowledged` is told what the sink has."""
        self._acknowledged = acknowledged or AcknowledgedActions()
        self._connection = connection
        self._keys = keys
        self._sink = sink
        self._node = node
        self._batch = 64
        self._adopted_at = 0.0

    async def flush(self) -> None:
        """`drain`, and from time to time the same for nodes that are gone. Raises as `drain`."""
        await self.drain()
        if time.monotonic() - self._adopted_at > _ADOPT_AFTER_S:
            await self._adopt()
            self._adopted_at = time.monotonic()

    async def drain(self) -> int:
        """Move all entries of this node that are pending now; returns their number.

        Raises:
            StateUnavailable, CatalogueUnavailable: the rest stays pending.

        """
        return await self._drain(self._node)

    async def _adopt(self) -> None:
        run, redis = self._connection.run, self._connection.redis
        for name in await run(redis.smembers(self._keys.nodes)):
            node = name.decode()
            oldest = [] if node == self._node else await run(redis.xrange(self._keys.pending(node), count=1))
            if oldest and clock.now() - int(oldest[0][0].split(b"-")[0]) / 1000 > _ADOPT_AFTER_S:
                log.info("journal of another node drained", node=node, count=await self._drain(node))

    async def _drain(self, node: str) -> int:
        run, redis, pending = self._connection.run, self._connection.redis, self._keys.pending(node)
        moved = 0
        # runs five times a second, usually for nothing: over redis-py's pool it took a fifth of an idle server's CPU
        if not await self._connection.send("XLEN", pending):
            return moved
        while True:
            count = self._batch
            entries = await run(redis.xrange(pending, count=count))
            if not entries:
                return moved
            texts = [fields[b"a"] for _, fields in entries]
            least, most = _BATCH
            self._batch = min(most, max(least, _BATCH_BYTES * len(texts) // sum(map(len, texts))))
            actions = [action_of(text) for text in texts]
            try:
                await self._sink.add_actions(actions)
            except InfrastructureError:
                raise
            except Exception:  # noqa: BLE001 - one unwritable action must not block all others
                await self._one_by_one(node, texts)
            self._acknowledged.written(actions)
            await run(redis.xdel(pending, *(entry_id for entry_id, _ in entries)))
            moved += len(entries)
            if len(entries) < count:
                # actions that arrive while SQL is written are taken by the next round, in one transaction
                return moved

    async def _one_by_one(self, node: str, texts: list[bytes]) -> None:
        run, redis, rejected = self._connection.run, self._connection.redis, self._keys.rejected(node)
        for text in texts:
            try:
                await self._sink.add_actions([action_of(text)])
            except InfrastructureError:
                raise
            except Exception as error:
                log.exception("an action cannot be written to SQL; kept in Redis", key=rejected, error=str(error))
                await run(redis.rpush(rejected, text))
                await run(redis.expire(rejected, _REJECTED_KEPT_S))
