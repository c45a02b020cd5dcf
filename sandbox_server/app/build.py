"""Builds a server: opens its parts in order, recovers its predecessor's work, runs the loops, closes in reverse."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sandbox_server import __version__, telemetry
from sandbox_server.app.box_parts import BoxParts, open_boxes
from sandbox_server.app.data_disk import free_bytes
from sandbox_server.app.engine import disk_path, engine_disk_of
from sandbox_server.app.foundation import Foundation, open_foundation
from sandbox_server.app.grading_parts import Gradings, open_gradings
from sandbox_server.app.parts import Parts
from sandbox_server.app.server_lock import place_of
from sandbox_server.app.session_parts import SessionParts, open_sessions
from sandbox_server.app.upkeep import Upkeep, upkeep_of
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.catalogue.session_tokens import SessionTokens
from sandbox_server.fleet.heartbeat import Heartbeat, NodeRequests
from sandbox_server.fleet.vitals import STALL_S, Gauges, Vitals
from sandbox_server.images.engine_disk import used_pct
from sandbox_server.insight.overview import Insight
from sandbox_server.pool.lookahead import TOGETHER as lookahead_together
from sandbox_server.pool.metering import Metering
from sandbox_server.sandbox.base import Runtime
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.upkeep.disk import DiskWatch

_WEIGH_S = 1.0
_VITALS_S = 30.0  # the engine takes some 20 ms to describe itself
_TIDY_S = 60.0
"""Interval of removing stored files of snapshots that another node deleted, and of boxes that have ended."""


@dataclass(frozen=True, slots=True)
class Server:
    """A working server, without HTTP."""

    foundation: Foundation
    gradings: Gradings
    sessions: SessionParts
    boxes: BoxParts
    upkeep: Upkeep
    vitals: Vitals
    heartbeat: Heartbeat


async def _facts(settings: Settings, boot: str, runtime: Runtime) -> NodeRecord:
    engine = await runtime.facts()
    return NodeRecord(
        node=settings.node_id,
        url=settings.own_url,
        boot=boot,
        place=place_of(settings.data_dir),
        version=__version__,
        engine=engine.version,
        cpus=engine.cpus,
        memory_mb=engine.memory_mb,
        slots=settings.max_sessions,
        grade_slots=settings.gradings,
    )


async def _vitals(settings: Settings, runtime: Runtime) -> Vitals:
    disk = await disk_path(settings, runtime)
    gauges = Gauges(
        disk_used=lambda: used_pct(disk) / 100,
        data_free_mb=lambda: free_bytes(settings.data_dir) / 2**20,
        stalls=lambda: telemetry.count_from(telemetry.LOOP_STALL_SECONDS, STALL_S),
    )
    return Vitals(runtime, gauges)


async def _heartbeat(
    settings: Settings, base: Foundation, gradings: Gradings, sessions: SessionParts, vitals: Vitals
) -> Heartbeat:
    return Heartbeat(
        base.state.nodes,
        base.runtime,
        sessions.starts,
        sessions.placement,
        await _facts(settings, base.data.store.boot, base.runtime),
        gradings=lambda: gradings.queue.count,
        faults=lambda: base.faults.present,
        vitals=lambda: vitals.now,
        requests=NodeRequests(sessions.fleet.announced, sessions.runs.end_requested),
    )


@asynccontextmanager
async def _kept_going(settings: Settings, server: Server) -> AsyncIterator[None]:
    """Run the background loops during the block."""
    base, sessions, boxes, upkeep = server.foundation, server.sessions, server.boxes, server.upkeep
    beat_s, disk_s, watch_s = settings.node_beat_s, settings.disk_period_s, settings.disk_watch_s
    engine_disk = await engine_disk_of(settings, base.runtime, base.data.store, base.data.instances, base.faults)
    session_disk = DiskWatch(base.runtime, base.data.store, upkeep.kinds, sessions.ends.end, node=settings.node_id)
    metering = Metering(base.runtime, base.data.store, base.state.usage, node=settings.node_id)
    every = base.loops.every
    async with AsyncExitStack() as stack:
        for loop in (
            every(beat_s, server.heartbeat.beat, name="heartbeat"),
            every(settings.reaper_period_s, upkeep.reaper.sweep_all, name="reaper", at_once=False),
            every(beat_s, server.gradings.balancer.look, name="balancer", at_once=False),
            every(0, sessions.log.write, name="session-log"),
            every(0, sessions.starts.pool.park, name="pool"),
            *(
                every(0, sessions.lookahead.prepare, name=f"lookahead-{number + 1}")
                for number in range(lookahead_together)
            ),
            every(disk_s, engine_disk.look, name="engine-disk"),
            every(disk_s, sessions.work.data_disk.look, name="data-disk"),
            every(_VITALS_S, server.vitals.look, name="vitals"),
            every(_WEIGH_S, base.runtime.weigh, name="cpu-weights", at_once=False),
            *([every(settings.run_cpu_period_s, metering.look, name="cpu")] if settings.run_cpu_s else []),
            *(
                every(settings.reaper_period_s, look, name=name)
                for name, look in (("sleep", sessions.sleeping.look), ("box-hibernation", boxes.hibernation.look))
                if settings.hibernate_s
            ),
            every(_TIDY_S, boxes.snapshots.tidy, name="snapshots", at_once=False),
            every(_TIDY_S, boxes.sleep.tidy, name="box-sleep", at_once=False),
            every(watch_s, session_disk.look, name="session-disk", at_once=False),
        ):
            await stack.enter_async_context(loop)
        yield


@asynccontextmanager
async def open_server(settings: Settings) -> AsyncIterator[Server]:
    """Open a server without HTTP; on entry it has recovered the work of its predecessor.

    Raises:
        AlreadyServed, NodeNameTaken: another server has the data directory, or the name.
        EngineUnavailable, StateUnavailable, CatalogueUnavailable. ValueError: a setting cannot be used.
    """
    async with (
        open_foundation(settings) as base,
        open_gradings(settings, base) as gradings,
        open_sessions(settings, base, gradings) as sessions,
        open_boxes(settings, base, sessions) as boxes,
    ):
        await base.state.signals.open(gradings.rewards.awaited)
        await gradings.balancer.open()
        upkeep = upkeep_of(settings, base, gradings, sessions, boxes)
        await upkeep.recovery.recover()
        await boxes.templates.recover()
        await boxes.snapshots.recover()
        await boxes.sleep.tidy()
        boxes.forks.tidy()
        vitals = await _vitals(settings, base.runtime)
        heartbeat = await _heartbeat(settings, base, gradings, sessions, vitals)
        await base.state.nodes.clear_drain(settings.node_id)
        await heartbeat.beat()
        server = Server(base, gradings, sessions, boxes, upkeep, vitals, heartbeat)
        async with _kept_going(settings, server):
            yield server


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Parts]:
    """Open a server and give its parts to protocols and health checks. Raises as `open_server`."""
    async with open_server(settings) as server:
        base, gradings = server.foundation, server.gradings
        sessions, boxes = server.sessions, server.boxes
        work, database, nodes = sessions.work, base.database, base.state.nodes
        yield Parts(
            sessions=sessions.service,
            receipts=base.data.history,
            instances=base.data.instances,
            fleet=sessions.fleet,
            boxes=boxes.boxes,
            box_monitoring=boxes.monitoring,
            box_creation=boxes.creation,
            copies=boxes.copies,
            snapshots=boxes.snapshots,
            snapshotting=boxes.snapshotting,
            box_forks=boxes.forks,
            templates=boxes.templates,
            grading=gradings.batches,
            rollouts=gradings.localizing.rollouts,
            session_tokens=SessionTokens(database),
            processes=work.processes,
            commands=work.commands,
            blobs=work.blobs,
            session_boxes=boxes.of_sessions,
            runs=sessions.runs,
            forking=sessions.forking,
            rollback=sessions.rollback,
            insight=Insight(Counts(database), Listing(database), ActionSearch(database), nodes.alive),
            nodes=nodes,
            logouts=base.state.logouts,
            drained=server.heartbeat.drained,
            loops=base.loops,
            probes={
                "docker": base.runtime.ping,
                "redis": base.data.store.check,
                "sql": database.ping,
                "node": sessions.placement.ready,
                "data": work.data_disk.check,
            },
        )
