"""Builds the parts of a real server; opens them in order and closes them in reverse."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_server import __version__
from sandbox_server.actions import registry as actions
from sandbox_server.app.data_disk import DataDisk
from sandbox_server.app.grading import grading_of
from sandbox_server.app.limits import batches_of, box_policy, image_rules, in_catalogue, kept_of, runtime_config
from sandbox_server.app.parts import Parts
from sandbox_server.app.scoring import batch_grading_of, drift_of, localizing_of
from sandbox_server.app.session_config import session_config
from sandbox_server.app.single import NodeNameTaken, only_server
from sandbox_server.app.state import open_store
from sandbox_server.app.workspaces import captures_of, open_workspaces
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.commands import Commands
from sandbox_server.boxes.kind import BoxesKind
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.processes import Processes
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.session_work import SessionWork
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.instances import Instances
from sandbox_server.fleet.balancer import GradingBalancer
from sandbox_server.fleet.heartbeat import Heartbeat
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.fleet.placement import Placement
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_rewards
from sandbox_server.images.box_images import BoxImages
from sandbox_server.images.engine_disk import DiskMarks, EngineDisk
from sandbox_server.insight.overview import Insight
from sandbox_server.pool.lookahead import TOGETHER as lookahead_together
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.records import SessionKind
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sandbox.podman.engine import PodmanEngine
from sandbox_server.sandbox.podman.runtime import PodmanRuntime
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.disk import DiskWatch
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.kinds import Kinds, TaskKind
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.reaper import Reaper
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.running import Running
from sandbox_server.sessions.runs import Runs
from sandbox_server.sessions.service import SessionService
from sandbox_server.sessions.starts import Starts
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord, Nodes
from sandbox_server.state.store import Store
from sandbox_server.tasks import Loops

_WATCH_AGAIN_S = 2.0  # pause after the engine closed its event stream or did not answer


@asynccontextmanager
async def open_catalogue(settings: Settings) -> AsyncIterator[Database]:
    """The database, migrated."""
    database = Database(settings.database)
    await database.migrate()
    try:
        yield database
    finally:
        await database.dispose()


@asynccontextmanager
async def open_runtime(settings: Settings, *, guest: str = "", faults: Faults | None = None) -> AsyncIterator[Runtime]:
    """The runtime of the engine in the settings; it reports to `faults` when the engine does not answer.

    `guest`: name of a command-line process beside the node's server; the server's reaper spares its containers.

    Raises:
        EngineUnavailable: the engine does not answer.
    """
    podman = settings.engine == "podman"
    engine = await asyncio.to_thread(
        PodmanEngine if podman else Engine,
        settings.docker_url,
        timeout_s=settings.docker_timeout_s,
        failures=settings.breaker_failures,
        fault=partial((faults or Faults()).tell, "daemon"),
    )
    runtime = (PodmanRuntime if podman else DockerRuntime)(engine, runtime_config(settings, guest))
    try:
        yield runtime
    finally:
        runtime.close()


async def disk_path(settings: Settings, runtime: Runtime) -> Path:
    """A path on the engine's disk; the data folder if the engine's folder is not visible here."""
    engine = Path((await runtime.facts()).root_dir)
    return settings.disk_path or (engine if await asyncio.to_thread(engine.is_dir) else settings.data_dir)


def _engine_disk(
    settings: Settings, runtime: Runtime, store: Store, instances: Instances, faults: Faults, path: Path
) -> EngineDisk:
    async def catalogue() -> frozenset[str]:
        return frozenset(map(tagged, await instances.images()))

    return EngineDisk(
        runtime,
        store.image_uses(),
        catalogue,
        faults,
        path=path,
        marks=DiskMarks(settings.disk_high_pct, settings.disk_low_pct, settings.disk_refuse_pct),
        rules=image_rules(settings),
    )


async def _alone_by_this_name(settings: Settings, nodes: Nodes) -> None:
    """Check that no other server uses this node's name, because both would end each other's sessions.

    Raises:
        NodeNameTaken: another server sends heartbeats under this name.
    """
    there = await nodes.get(settings.node_id)
    if there is None or there.url == settings.own_url:
        return  # the record of this node's previous server, which had the same URL
    await asyncio.sleep(2 * settings.node_beat_s)
    now = await nodes.get(settings.node_id)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        raise NodeNameTaken(
            f"another server, at {now.url}, is node {settings.node_id} of this Redis; set another SANDBOX_NODE_ID"
        )


async def _facts(settings: Settings, boot: str, runtime: Runtime) -> NodeRecord:
    engine = await runtime.facts()
    return NodeRecord(
        node=settings.node_id,
        url=settings.own_url,
        boot=boot,
        version=__version__,
        engine=engine.version,
        cpus=engine.cpus,
        memory_mb=engine.memory_mb,
        slots=settings.max_sessions,
        grade_slots=settings.gradings,
    )


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Parts]:
    """Open all parts of a server and recover the state that a previous server left."""
    config = session_config(settings)
    async with AsyncExitStack() as stack:
        stack.enter_context(only_server(settings.data_dir))
        database = await stack.enter_async_context(open_catalogue(settings))
        history, instances, listing = History(database), Instances(database), Listing(database)
        faults, loops = Faults(), Loops()
        runtime = await stack.enter_async_context(open_runtime(settings, faults=faults))
        state = await stack.enter_async_context(open_store(settings, history, loops))
        store, nodes = state.store, state.nodes
        await _alone_by_this_name(settings, nodes)
        workspaces = await stack.enter_async_context(open_workspaces(settings, runtime))
        grading = grading_of(settings, runtime, database, workspaces, faults, claims=store)
        queue = GradingQueue(grading, history, concurrency=settings.gradings, claims=store)
        stack.push_async_callback(queue.close)
        localizing = localizing_of(settings, database, store, history)
        rewards = Rewards(
            queue,
            history,
            instances,
            load_rewards(),
            state.jobs,
            state.signals,
            localizing,
            faults,
            reward=config.reward,
            node=config.node,
            slots=settings.gradings,
            prefetch=settings.grade_prefetch,
        )
        stack.push_async_callback(rewards.close)
        grade_batches = batch_grading_of(settings, instances, queue, localizing)
        stack.push_async_callback(grade_batches.close)
        balancer = GradingBalancer(
            state.jobs,
            rewards,
            state.nodes,
            store,
            history,
            instances,
            node=config.node,
            period_s=settings.node_beat_s,
            recover_period_s=settings.grade_recover_s,
            kept_s=settings.result_ttl_s,
        )
        await stack.enter_async_context(loops.every(_WATCH_AGAIN_S, runtime.watch_images, name="images"))
        await stack.enter_async_context(loops.every(_WATCH_AGAIN_S, runtime.watch_egress, name="egress"))
        box_history = BoxHistory(database)
        session_log = SessionLog(history, box_history)
        stack.push_async_callback(session_log.drain)
        probe_s = settings.breaker_probe_s
        probe = partial(runtime.probe_engine, timeout_s=probe_s)
        await stack.enter_async_context(loops.every(probe_s, probe, name="engine", at_once=False))
        starts = Starts(runtime, workspaces, store, session_log, config, faults)
        stack.push_async_callback(starts.pool.close)
        ownership = Ownership(nodes, node=config.node)
        placement = Placement(nodes, node=config.node)
        data_disk = DataDisk(settings.data_dir, faults, min_free_mb=settings.data_min_free_mb)
        blobs = Blobs(settings.data_dir / "blobs", most_bytes=int(settings.blobs_mb * 2**20), room=data_disk.room)
        processes = Processes(notes=state.boxes)
        stack.push_async_callback(processes.close)
        commands = Commands(processes, state.commands, kept_of(settings))
        stack.push_async_callback(commands.close)
        running = Running(
            store,
            config,
            batches_of(settings),
            dialects=actions.dialects(),
            tools=actions.tools(),
            runners=SessionWork(commands, blobs, longest_s=config.restore_timeout_s).runners,
        )
        restoring = Restoring(
            runtime,
            workspaces,
            store,
            history,
            instances,
            starts,
            running,
            ownership,
            placement,
            session_log,
            config,
        )
        stack.push_async_callback(restoring.close)
        lookahead = Lookahead(workspaces, starts.pool, starts.groups, wanted_s=config.pool_idle_s, faults=faults)
        captures = captures_of(settings, runtime)
        stack.push_async_callback(captures.close)
        acting = Acting(runtime, store, history, instances, running, restoring, config)
        ending = Ending(
            runtime,
            workspaces,
            captures,
            store,
            history,
            instances,
            starts,
            rewards,
            ownership,
            restoring,
            config,
            interrupt=acting.interrupt,
        )
        stack.push_async_callback(ending.close)
        service = SessionService(
            store=store,
            history=history,
            instances=instances,
            starts=starts,
            placement=placement,
            nodes=nodes,
            lookahead=lookahead,
            acting=acting,
            ending=ending,
            rewards=rewards,
            localizing=localizing,
            listing=listing,
            run_state=state.runs,
            config=config,
        )
        runs = Runs(store, state.runs, nodes, node=config.node, end_apart=service.end_apart)
        lives = BoxLives(runtime, store, state.boxes, session_log, wait_s=config.action_wait_s)
        disk_mb = config.limits.disk_mb
        kinds: Kinds = {
            SessionKind.TASK: TaskKind(instances, idle_s=config.session_idle_s, disk_mb=disk_mb),
            SessionKind.BOX: BoxesKind(state.boxes, box_history, lives, disk_mb=disk_mb),
        }
        reaper = Reaper(
            runtime,
            store,
            history,
            kinds,
            nodes,
            state.runs,
            ownership,
            restoring,
            starts,
            ending,
            rewards,
            config,
            service.end,
        )
        facts = await _facts(settings, store.boot, runtime)
        boxes = Boxes(
            runtime=runtime,
            store=store,
            facts=state.boxes,
            history=history,
            starts=starts,
            placement=placement,
            ownership=ownership,
            ending=ending,
            log=session_log,
            lives=lives,
            policy=box_policy(settings, cpus=facts.cpus),
            images=BoxImages(runtime, workspaces, instances.of_images, instances.by_id, raw=settings.box_raw_images),
            may_pull=partial(in_catalogue, instances),
        )
        stack.push_async_callback(boxes.close)
        await state.signals.open(rewards.awaited)
        await balancer.open()
        await reaper.recover()
        heartbeat = Heartbeat(
            nodes,
            runtime,
            starts,
            placement,
            facts,
            gradings=lambda: queue.count,
            faults=lambda: faults.present,
            announced=service.announced,
            ends=runs.hear,
        )
        await nodes.drained(config.node)
        await heartbeat.beat()
        beat_s = settings.node_beat_s
        await stack.enter_async_context(loops.every(beat_s, heartbeat.beat, name="heartbeat"))
        await stack.enter_async_context(
            loops.every(config.reaper_period_s, reaper.sweep_all, name="reaper", at_once=False)
        )
        await stack.enter_async_context(loops.every(beat_s, balancer.look, name="balancer", at_once=False))
        await stack.enter_async_context(loops.every(0, session_log.write, name="session-log"))
        await stack.enter_async_context(loops.every(0, starts.pool.park, name="pool"))
        for number in range(lookahead_together):
            await stack.enter_async_context(loops.every(0, lookahead.prepare, name=f"lookahead-{number + 1}"))
        if settings.drift_check_s:
            drift = drift_of(database, grading, idle=lambda: not queue.count)
            drift_s = settings.drift_check_s * random.uniform(0.5, 1.5)  # so that not all nodes check at once
            await stack.enter_async_context(loops.every(drift_s, drift.look, name="drift", at_once=False))
        room = _engine_disk(settings, runtime, store, instances, faults, await disk_path(settings, runtime))
        await stack.enter_async_context(loops.every(settings.disk_period_s, room.look, name="engine-disk"))
        disk = DiskWatch(runtime, store, kinds, service.end, node=config.node)
        await stack.enter_async_context(loops.every(settings.disk_period_s, data_disk.look, name="data-disk"))
        watch_s = settings.disk_watch_s
        await stack.enter_async_context(loops.every(watch_s, disk.look, name="session-disk", at_once=False))
        yield Parts(
            sessions=service,
            receipts=history,
            instances=instances,
            boxes=boxes,
            grading=grade_batches,
            rollouts=localizing.rollouts,
            processes=processes,
            commands=commands,
            blobs=blobs,
            session_boxes=SessionBoxes(
                acting, ending, store, commands, blobs, file_bytes=int(settings.journal_file_mb * 2**20)
            ),
            runs=runs,
            insight=Insight(Counts(database), listing, nodes.alive),
            nodes=nodes,
            drained=heartbeat.drained,
            loops=loops,
            probes={
                "docker": runtime.ping,
                "redis": store.ping,
                "sql": database.ping,
                "node": placement.ready,
                "data": data_disk.check,
            },
        )
