"""The real parts of a server, opened in order and closed in reverse."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_server import __version__
from sandbox_server.actions import registry as actions
from sandbox_server.app.limits import batches_of, box_policy, image_rules, in_catalogue, limits_of, runtime_config
from sandbox_server.app.parts import Parts
from sandbox_server.app.scoring import batch_grading_of, localizing_of
from sandbox_server.app.session_config import session_config
from sandbox_server.app.single import NodeNameTaken, only_server
from sandbox_server.app.state import open_store
from sandbox_server.app.workspaces import open_workspaces
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.base import Baseline
from sandbox_server.grading.containers import Bounds, Containers
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_graders, load_rewards
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.blobs import Blobs
from sandbox_server.sessions.box_lives import BoxLives
from sandbox_server.sessions.boxes import Boxes
from sandbox_server.sessions.commands import Commands, Kept
from sandbox_server.sessions.disk import DiskWatch
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.engine_disk import DiskMarks, EngineDisk
from sandbox_server.sessions.heartbeat import Heartbeat
from sandbox_server.sessions.helping import Helping
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.lookahead import Lookahead
from sandbox_server.sessions.owners import Owners
from sandbox_server.sessions.placement import Placement
from sandbox_server.sessions.processes import Processes
from sandbox_server.sessions.reaper import Reaper
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.rewards import Rewards
from sandbox_server.sessions.running import Running
from sandbox_server.sessions.service import SessionService
from sandbox_server.sessions.starts import Starts
from sandbox_server.sessions.workspace import Workspaces
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord, Nodes
from sandbox_server.state.store import Store


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
async def open_runtime(
    settings: Settings, *, guest: str = "", faults: Faults | None = None
) -> AsyncIterator[DockerRuntime]:
    """The Docker engine, which tells `faults` when it does not answer.

    `guest` names a command line that works beside the node's server, whose reaper spares it.

    Raises:
        EngineUnavailable: it does not answer.
    """
    engine = await asyncio.to_thread(
        Engine,
        settings.docker_url,
        timeout_s=settings.docker_timeout_s,
        failures=settings.breaker_failures,
        fault=partial((faults or Faults()).tell, "daemon"),
    )
    runtime = DockerRuntime(engine, runtime_config(settings, guest))
    try:
        yield runtime
    finally:
        runtime.close()


def grading_of(
    settings: Settings,
    runtime: DockerRuntime,
    instances: Instances,
    workspaces: Workspaces,
    faults: Faults | None = None,
) -> Grading:
    """Grades as the settings say; nothing while there are `faults`."""

    async def baseline(instance: TaskInstance) -> Baseline | None:
        verification = await instances.verified(instance.instance_id)
        if verification is None:
            return None
        return Baseline(
            empty_gives_results=verification.empty in ("resolved", "unresolved"),
            gold_tests_s=math.inf if verification.gold == "timeout" else None,
        )

    bounds = Bounds(tests_s=settings.grade_timeout_s)
    containers = Containers(
        runtime,
        limits=limits_of(settings),
        network="bridge" if settings.grade_network else "none",
        cpu_shares=settings.grade_cpu_shares,
        bounds=bounds,
        ahead=settings.grade_ahead,
        ahead_boots=max(1, settings.boots // 2),  # the others are for starts
        faults=faults,
        task_image=workspaces.task_image,
    )
    return Grading(
        containers,
        load_graders(),
        baseline,
        runner_files=settings.runner_files,
        attempts=settings.grade_attempts,
        bounds=bounds,
    )


async def disk_path(settings: Settings, runtime: DockerRuntime) -> Path:
    """A path on the engine's disk."""
    engine = Path((await runtime.facts()).root_dir)
    return settings.disk_path or (engine if await asyncio.to_thread(engine.is_dir) else settings.data_dir)


def _engine_disk(
    settings: Settings, runtime: DockerRuntime, store: Store, instances: Instances, faults: Faults, path: Path
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
        period_s=settings.disk_period_s,
    )


async def _alone_by_this_name(settings: Settings, nodes: Nodes) -> None:
    """Two servers of one node name would end each other's sessions.

    Raises:
        NodeNameTaken: another server beats under this one's name.
    """
    there = await nodes.get(settings.node_id)
    if there is None or there.url == settings.own_url:
        return  # a former server of ours; this one has its address
    await asyncio.sleep(2 * settings.node_beat_s)
    now = await nodes.get(settings.node_id)
    if now is not None and (now.boot, now.beats) != (there.boot, there.beats):
        raise NodeNameTaken(
            f"another server, at {now.url}, is node {settings.node_id} of this Redis; set another SANDBOX_NODE_ID"
        )


async def _facts(settings: Settings, boot: str, runtime: DockerRuntime) -> NodeRecord:
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
    """Everything a server needs, recovered from what a former one left."""
    config = session_config(settings)
    async with AsyncExitStack() as stack:
        stack.enter_context(only_server(settings.data_dir))
        database = await stack.enter_async_context(open_catalogue(settings))
        history, instances = History(database), Instances(database)
        faults = Faults()
        runtime = await stack.enter_async_context(open_runtime(settings, faults=faults))
        state = await stack.enter_async_context(open_store(settings, history))
        store, nodes = state.store, state.nodes
        await _alone_by_this_name(settings, nodes)
        workspaces = await stack.enter_async_context(open_workspaces(settings, runtime))
        queue = GradingQueue(
            grading_of(settings, runtime, instances, workspaces, faults),
            history,
            concurrency=settings.gradings,
            claims=store,
        )
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
        helping = Helping(
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
        await stack.enter_async_context(_running(runtime.watch_images))
        await stack.enter_async_context(_running(runtime.watch_egress))
        box_history = BoxHistory(database)
        session_log = SessionLog(history, box_history)
        stack.push_async_callback(session_log.drain)
        await stack.enter_async_context(_running(partial(runtime.watch_engine, settings.breaker_probe_s)))
        starts = Starts(runtime, workspaces, store, session_log, config, faults)
        stack.push_async_callback(starts.pool.close)
        owners = Owners(nodes, node=config.node)
        placement = Placement(nodes, node=config.node)
        running = Running(store, config, batches_of(settings), dialects=actions.dialects(), tools=actions.tools())
        restoring = Restoring(
            runtime,
            workspaces,
            store,
            history,
            instances,
            starts,
            running,
            owners,
            placement,
            session_log,
            config,
        )
        stack.push_async_callback(restoring.close)
        lookahead = Lookahead(workspaces, starts.pool, starts.groups, wanted_s=config.pool_idle_s, faults=faults)
        ending = Ending(runtime, workspaces, store, history, instances, starts, rewards, owners, restoring, config)
        stack.push_async_callback(ending.close)
        service = SessionService(
            store=store,
            history=history,
            instances=instances,
            starts=starts,
            placement=placement,
            nodes=nodes,
            lookahead=lookahead,
            acting=Acting(runtime, store, history, instances, running, restoring, config),
            ending=ending,
            rewards=rewards,
            localizing=localizing,
            config=config,
        )
        lives = BoxLives(runtime, store, state.boxes, session_log, wait_s=config.action_wait_s)
        reaper = Reaper(
            runtime,
            store,
            history,
            state.boxes,
            box_history,
            lives,
            nodes,
            owners,
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
            owners=owners,
            ending=ending,
            log=session_log,
            lives=lives,
            policy=box_policy(settings, cpus=facts.cpus),
            may_pull=partial(in_catalogue, instances),
        )
        stack.push_async_callback(boxes.close)
        processes = Processes(notes=state.boxes)
        stack.push_async_callback(processes.close)
        kept = Kept(
            output_bytes=int(settings.box_output_mb * 2**20), total_bytes=int(settings.box_output_total_mb * 2**20)
        )
        commands = Commands(processes, state.commands, kept)
        stack.push_async_callback(commands.close)
        await state.signals.open(rewards.awaited)
        await helping.open()
        await reaper.recover()
        heartbeat = Heartbeat(
            nodes,
            runtime,
            starts,
            placement,
            facts,
            period_s=settings.node_beat_s,
            gradings=lambda: queue.count,
            faults=lambda: faults.present,
            announced=service.announced,
        )
        await nodes.drained(config.node)
        await heartbeat.beat()
        await stack.enter_async_context(_running(heartbeat.run))
        await stack.enter_async_context(_running(reaper.run))
        await stack.enter_async_context(_running(helping.run))
        await stack.enter_async_context(_running(session_log.run))
        await stack.enter_async_context(_running(starts.pool.run))
        await stack.enter_async_context(_running(lookahead.run))
        room = _engine_disk(settings, runtime, store, instances, faults, await disk_path(settings, runtime))
        await stack.enter_async_context(_running(room.run))
        disk = DiskWatch(runtime, store, instances, state.boxes, config, service.end, period_s=settings.disk_watch_s)
        await stack.enter_async_context(_running(disk.run))
        yield Parts(
            sessions=service,
            receipts=history,
            instances=instances,
            boxes=boxes,
            grading=grade_batches,
            rollouts=localizing.rollouts,
            processes=processes,
            commands=commands,
            blobs=Blobs(settings.data_dir / "blobs", most_bytes=int(settings.blobs_mb * 2**20)),
            nodes=nodes,
            drained=heartbeat.drained,
            probes={"docker": runtime.ping, "redis": store.ping, "sql": database.ping, "node": placement.ready},
        )


@asynccontextmanager
async def _running(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def run() -> None:
        await work()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
