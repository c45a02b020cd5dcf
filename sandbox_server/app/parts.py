"""What the application is made of, and the part of it that is Redis."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from sandbox_server import clock
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import InfrastructureError, StateUnavailable
from sandbox_server.sessions.base import Sessions
from sandbox_server.settings import Settings
from sandbox_server.state.connection import Connection
from sandbox_server.state.embedded import EmbeddedRedis
from sandbox_server.state.journal import ActionSink, JournalFlusher
from sandbox_server.state.keys import Keys
from sandbox_server.state.nodes import Nodes
from sandbox_server.state.store import Store
from sandbox_server.telemetry import logger

log = logger(__name__)

_LAST_WRITE_S = 5.0
"""For the journal's write that is under way at shutdown; a commit takes some ms."""

_CLOCKS_APART_S = 1.0
_LOOK_EVERY_S = 0.5
"""At whether the embedded Redis runs: a try of a lock."""

Probe = Callable[[], Awaitable[object]]
"""Returns when its part answers, raises when it does not."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that protocols and health checks speak to."""

    sessions: Sessions
    receipts: History
    instances: Instances
    probes: Mapping[str, Probe]
    """Part -> probe, for /readyz: docker, redis, sql, node."""
    nodes: Nodes | None = None
    """Where requests for sessions of other nodes go; None: there are none."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server was asked to drain and nothing is left to do."""


Build = Callable[[Settings], AbstractAsyncContextManager[Parts]]
"""Opens the parts and closes them in reverse order."""


@asynccontextmanager
async def open_connection(settings: Settings) -> AsyncIterator[Connection]:
    """Redis as a command line needs it: nothing is registered there, and the embedded one is adopted or started."""
    embedded = EmbeddedRedis(settings.data_dir)
    url = await asyncio.to_thread(embedded.start) if settings.redis_url is None else settings.redis_url
    connection = Connection(url, timeout_s=settings.redis_timeout_s)
    try:
        yield connection
    finally:
        await connection.close()
        if settings.redis_url is None:
            await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def open_store(settings: Settings, sink: ActionSink) -> AsyncIterator[tuple[Store, Nodes]]:
    """The store and the nodes on the external or the embedded Redis, its journal flowing into `sink`.

    On the way out the journal is drained once more and the embedded Redis saved and ended, unless another server
    uses it. After kill -9 none of that happens, and the next server adopts what is there.
    """
    if settings.redis_url:
        async with _store_at(settings.redis_url, settings, sink) as opened:
            yield opened
        return
    embedded = EmbeddedRedis(settings.data_dir)
    url = await asyncio.to_thread(embedded.start)
    watching = asyncio.create_task(_keep(embedded))
    try:
        async with _store_at(url, settings, sink) as opened:
            yield opened
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await asyncio.to_thread(embedded.stop)


async def _keep(embedded: EmbeddedRedis) -> None:
    """Start it again when it ends under a running server; its append-only file has what it acknowledged."""
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        if embedded.runs():
            continue
        log.error("the embedded Redis has ended; starting it again", folder=str(embedded.folder))
        try:
            await asyncio.to_thread(embedded.start)
        except StateUnavailable as error:
            log.error("the embedded Redis does not start", error=error.detail)


@asynccontextmanager
async def _store_at(url: str, settings: Settings, sink: ActionSink) -> AsyncIterator[tuple[Store, Nodes]]:
    keys = Keys()
    connection = Connection(url, timeout_s=settings.redis_timeout_s, outage_s=settings.redis_outage_s)
    store = Store(
        connection,
        keys,
        node=settings.node_id,
        lock_lease_s=settings.lock_lease_s,
        result_ttl_s=settings.result_ttl_s,
    )
    nodes = Nodes(connection, keys, node=settings.node_id, boot=store.boot, ttl_s=settings.node_ttl_s)
    flusher = JournalFlusher(connection, keys, sink, node=settings.node_id, period_s=settings.journal_flush_s)
    try:
        await store.open()
        off_s = clock.set_to(await store.time())
        if abs(off_s) > _CLOCKS_APART_S:
            log.warning("this host's clock differs from that of Redis, which is taken", seconds=round(off_s, 1))
        flushing = asyncio.create_task(flusher.run())
        try:
            yield store, nodes
        finally:
            flusher.stop()
            await asyncio.wait({flushing}, timeout=_LAST_WRITE_S)
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
            try:
                await flusher.drain()
            except InfrastructureError as error:  # the next server drains what is left
                log.warning("journal not drained at shutdown", code=error.code, error=error.detail)
    finally:
        await store.close()
        await connection.close()
