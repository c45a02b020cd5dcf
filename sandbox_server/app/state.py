"""The parts of the application whose data is in Redis, opened in order and closed in reverse.

Separate from `parts`, because the library of `state.jobs` is expensive to import.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from sandbox_server import clock
from sandbox_server.app.server_lock import place_of, take_name
from sandbox_server.errors import InfrastructureError
from sandbox_server.settings import Settings
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.commands import BegunCommands
from sandbox_server.state.connection import Connection
from sandbox_server.state.embedded import EmbeddedRedis
from sandbox_server.state.jobs import GradingJobs
from sandbox_server.state.journal import ActionSink, JournalFlusher
from sandbox_server.state.keys import Keys
from sandbox_server.state.logouts import Logouts
from sandbox_server.state.nodes import Nodes
from sandbox_server.state.runs import RunState
from sandbox_server.state.signals import Signals
from sandbox_server.state.store import Store
from sandbox_server.state.usage import Usage
from sandbox_server.tasks import Loops
from sandbox_server.telemetry import logger

log = logger(__name__)

_LAST_WRITE_S = 5.0
"""Time to finish a pending write of the journal at shutdown; a commit takes some ms."""

_CLOCKS_APART_S = 1.0
_LOOK_EVERY_S = 0.5
"""Interval of checks whether the embedded Redis runs; a check is one attempt to take a lock."""


@dataclass(frozen=True, slots=True)
class State:
    """The interfaces to the data in Redis."""

    store: Store
    boxes: BoxFacts
    commands: BegunCommands
    nodes: Nodes
    runs: RunState
    jobs: GradingJobs
    signals: Signals
    usage: Usage
    logouts: Logouts


@asynccontextmanager
async def open_connection(settings: Settings) -> AsyncIterator[Connection]:
    """A connection for a command line, which registers nothing; adopts or starts the embedded Redis if that is used."""
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
async def open_store(settings: Settings, sink: ActionSink, loops: Loops) -> AsyncIterator[State]:
    """Open the state in the external or the embedded Redis; the journal is flushed to `sink`.

    On exit, drains the journal once more, and saves and stops the embedded Redis unless another server uses it. After
    kill -9 none of this happens, and the next server adopts the embedded Redis or its files.
    """
    if settings.redis_url:
        async with _store_at(settings.redis_url, settings, sink, loops) as state:
            yield state
        return
    embedded = EmbeddedRedis(settings.data_dir)
    url = await asyncio.to_thread(embedded.start)
    try:
        async with (
            loops.every(_LOOK_EVERY_S, partial(_keep, embedded), name="embedded-redis", at_once=False),
            _store_at(url, settings, sink, loops) as state,
        ):
            yield state
    finally:
        await asyncio.to_thread(embedded.stop)


async def _keep(embedded: EmbeddedRedis) -> None:
    """Restart the embedded Redis if it has ended; its append-only file has all acknowledged writes.

    Raises:
        StateUnavailable: it does not start.
    """
    if not embedded.runs():
        log.error("the embedded Redis has ended; starting it again", folder=str(embedded.folder))
        await asyncio.to_thread(embedded.start)


async def _follow(store: Store) -> None:
    """Follow the clock of Redis. Raises StateUnavailable."""
    began = time.monotonic()
    told = await store.time()
    took_s = time.monotonic() - began
    off_s = clock.follow(told + took_s / 2)
    if abs(off_s) > _CLOCKS_APART_S + took_s:
        log.warning(
            "the clock of this server and that of Redis have come apart; this one goes up to a tenth faster or slower"
            " until they agree. Was a host suspended, or its clock set?",
            seconds=round(off_s, 1),
        )


@asynccontextmanager
async def _store_at(url: str, settings: Settings, sink: ActionSink, loops: Loops) -> AsyncIterator[State]:
    keys, place = Keys(), place_of(settings.data_dir)
    connection = Connection(url, timeout_s=settings.redis_timeout_s, outage_s=settings.redis_outage_s)
    store = Store(
        connection,
        keys,
        node=settings.node_id,
        lock_lease_s=settings.lock_lease_s,
        result_ttl_s=settings.result_ttl_s,
        loops=loops,
    )
    boxes = BoxFacts(connection, keys, result_ttl_s=settings.result_ttl_s)
    nodes = Nodes(connection, keys, node=settings.node_id, boot=store.boot, ttl_s=settings.node_ttl_s)
    runs = RunState(connection, keys, node=settings.node_id)
    jobs = GradingJobs(url, connection, keys, node=settings.node_id, lost_after_s=settings.node_ttl_s)
    signals = Signals(connection, keys, node=settings.node_id, loops=loops)
    usage = Usage(connection, keys, window_s=settings.run_window_s)
    logouts = Logouts(connection, keys)
    flusher = JournalFlusher(connection, keys, sink, node=settings.node_id, acknowledged=store.acknowledged)
    try:
        if unfit := await connection.unfit():  # first, because a node of a Redis Cluster refuses the writes below
            log.error("this Redis is not fit for the service", why=unfit)
        if settings.redis_url:  # else it is the private Redis of this data directory
            await take_name(settings.node_id, nodes, place=place, beat_s=settings.node_beat_s)
        await store.open()  # voids the leases of the node's former server
        off_s = clock.set_to(await store.time())
        if abs(off_s) > _CLOCKS_APART_S:
            log.warning(
                "this host's clock differs from that of Redis; the service uses Redis's", seconds=round(off_s, 1)
            )
        flushing = loops.start(settings.journal_flush_s, flusher.flush, name="journal")
        following = loops.start(clock.FOLLOW_S, partial(_follow, store), name="clock")
        try:
            yield State(store, boxes, BegunCommands(connection, keys), nodes, runs, jobs, signals, usage, logouts)
        finally:
            await following.stop()
            await signals.close()
            await jobs.close()
            # a cancelled transaction would delay the next one
            await flushing.stop(finish_s=_LAST_WRITE_S)
            try:
                await flusher.drain()
                await nodes.disclaim(place)
            except InfrastructureError as error:  # the next server drains what is left
                log.warning("journal not drained at shutdown", code=error.code, error=error.detail)
    finally:
        await store.close()
        await connection.close()
