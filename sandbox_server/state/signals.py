"""Notifications about gradings between servers, by Redis's publish and subscribe.

They are not stored: one that is sent while a connection is down is lost, so whoever waits for one also polls.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from sandbox_server.errors import StateUnavailable
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.tasks import Loop, Loops
from sandbox_server.telemetry import logger

log = logger(__name__)

_READ_S = 10.0  # a round of the reading loop; a message ends it at once


class Signals:
    """One listening connection for all waiters of this process. Call `open` first and `close` last."""

    def __init__(self, connection: Connection, keys: Keys, *, node: str, loops: Loops | None = None) -> None:
        self._connection = connection
        self._keys = keys
        self._own = keys.awaited(node)
        self._heard: Callable[[str], None] = lambda _: None
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._pubsub: PubSub | None = None
        self._loops = loops or Loops()
        self._reading: Loop | None = None

    async def open(self, awaited: Callable[[str], None]) -> None:
        """Listen; `awaited(sid)` is called when somebody on another node waits for it. Raises StateUnavailable."""
        self._heard = awaited
        self._pubsub = self._connection.redis.pubsub(ignore_subscribe_messages=True)
        await self._connection.run(self._pubsub.subscribe(self._own))
        self._reading = self._loops.start(0, partial(self._read, self._pubsub), name="signals")

    async def close(self) -> None:
        """Stop listening."""
        if self._reading is not None:
            await self._reading.stop()
        if self._pubsub is not None:
            with contextlib.suppress(RedisError, OSError):
                await self._pubsub.aclose()  # type: ignore[no-untyped-call] # redis-py leaves it bare

    async def tell_awaited(self, sid: str, node: str) -> None:
        """Tell `node` that somebody here waits for the verdict of `sid`. Raises StateUnavailable."""
        await self._connection.send("PUBLISH", self._keys.awaited(node), sid)

    async def tell_graded(self, sid: str) -> None:
        """Tell all waiters that the verdict of `sid` is in SQL. Raises StateUnavailable."""
        await self._connection.send("PUBLISH", self._keys.graded(sid), "")

    @contextlib.asynccontextmanager
    async def listen_for_verdict(self, sid: str) -> AsyncIterator[asyncio.Event]:
        """During the block, the event is set when the verdict of `sid` arrives; never if Redis does not answer."""
        channel = self._keys.graded(sid)
        event = asyncio.Event()
        self._waiting.setdefault(channel, set()).add(event)
        try:
            if len(self._waiting[channel]) == 1:
                await self._try(channel, subscribe=True)
            yield event
        finally:
            self._waiting[channel].discard(event)
            if not self._waiting[channel]:
                del self._waiting[channel]
                await self._try(channel, subscribe=False)

    async def _try(self, channel: str, *, subscribe: bool) -> None:
        assert self._pubsub is not None, "not open"
        change = self._pubsub.subscribe if subscribe else self._pubsub.unsubscribe
        try:
            await self._connection.run(change(channel))
        except StateUnavailable as error:
            log.warning("notifications of other servers are not received", channel=channel, error=error.detail)

    async def _read(self, pubsub: PubSub) -> None:
        try:
            message = await pubsub.get_message(timeout=_READ_S)
        except (RedisError, OSError) as error:
            raise StateUnavailable(f"notifications of other servers are not received: {error}") from error
        if message is None or message["type"] != "message":
            return
        channel = message["channel"].decode()
        if channel == self._own:
            self._heard(message["data"].decode())
        for event in self._waiting.get(channel, ()):
            event.set()
