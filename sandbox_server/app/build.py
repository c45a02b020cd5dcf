"""The real parts of a server, opened in order and closed in reverse."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from sandbox_server.actions import registry as actions
from sandbox_server.app.parts import Parts, open_store
from sandbox_server.app.single import only_server
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.grading.base import Baseline
from sandbox_server.grading.containers import Bounds, Containers
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.registry import load_graders, load_rewards
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.sessions.disk import DiskWatch
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.lookahead import Lookahead
from sandbox_server.sessions.reaper import Reaper
from sandbox_server.sessions.rewards import Rewards
from sandbox_server.sessions.service import SessionService
from sandbox_server.sessions.starts import Starts
from sandbox_server.sessions.workspace import Workspaces
from sandbox_server.settings import Settings

_PREPARE_S = 1800.0  # for repacking a large history on a busy disk; starts give up long before, it goes on


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
async def open_runtime(settings: Settings, *, guest: str = "") -> AsyncIterator[DockerRuntime]:
    """The Docker engine. `guest` names a command line that works beside the node's server, whose reaper spares it.

    Raises:
        EngineUnavailable: it does not answer.
    """
    engine = await asyncio.to_thread(Engine, settings.docker_url, timeout_s=settings.docker_timeout_s)
    runtime = DockerRuntime(
        engine,
        RuntimeConfig(
            node=f"{settings.node_id}+{guest}" if guest else settings.node_id,
            oci_runtime=settings.runtime,
            boot_concurrency=settings.boots,
            pull=settings.pull == "missing",
            pull_timeout_s=settings.pull_timeout_s,
        ),
    )
    try:
        yield runtime
    finally:
        runtime.close()


def limits_of(settings: Settings) -> Limits:
    """What a container may use where its instance says nothing."""
    return Limits(
        memory_mb=settings.memory_mb,
        cpus=settings.cpus,
        pids=settings.pids,
        open_files=settings.open_files,
        disk_mb=settings.disk_mb,
    )


def grading_of(settings: Settings, runtime: DockerRuntime, instances: Instances) -> Grading:
    """Grades as the settings say."""

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
    )
    return Grading(
        containers,
        load_graders(),
        baseline,
        runner_files=settings.runner_files,
        attempts=settings.grade_attempts,
        bounds=bounds,
    )


def workspaces_of(settings: Settings, runtime: DockerRuntime) -> Workspaces:
    """Prepares images as the settings say."""
    return Workspaces(runtime, limits=limits_of(settings), timeout_s=_PREPARE_S)


def _session_config(settings: Settings) -> SessionConfig:
    return SessionConfig(
        node=settings.node_id,
        limits=limits_of(settings),
        dialect=actions.dialect(settings.dialect).name,
        profile=None if settings.profile is None else actions.profile(settings.profile),
        command_timeout_s=settings.command_timeout_s,
        soft_timeout_s=settings.soft_timeout_s,
        action_wait_s=settings.action_wait_s,
        start_timeout_s=settings.start_timeout_s,
        max_sessions=settings.max_sessions,
        session_idle_s=settings.session_idle_s,
        session_max_s=settings.session_max_s,
        postprocess_timeout_s=settings.postprocess_timeout_s,
        max_patch_bytes=int(settings.max_patch_mb * 2**20),
        reward=settings.reward,
        reward_wait_s=settings.reward_wait_s,
        allow_ungradable=settings.allow_ungradable,
        reaper_period_s=settings.reaper_period_s,
        pool_size=settings.pool_size,
        pool_idle_s=settings.pool_idle_s,
        pool_min_free_mb=settings.pool_min_free_mb,
        pool_group=settings.pool_group,
        pool_group_window_s=settings.pool_group_window_s,
        boot_concurrency=settings.boots,
    )


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Parts]:
    """Everything a server needs, recovered from what a former one left."""
    config = _session_config(settings)
    async with AsyncExitStack() as stack:
        stack.enter_context(only_server(settings.data_dir))
        database = await stack.enter_async_context(open_catalogue(settings))
        history, instances = History(database), Instances(database)
        runtime = await stack.enter_async_context(open_runtime(settings))
        store = await stack.enter_async_context(open_store(settings, history))
        workspaces = workspaces_of(settings, runtime)
        queue = GradingQueue(grading_of(settings, runtime, instances), history, concurrency=settings.gradings)
        stack.push_async_callback(queue.close)
        rewards = Rewards(queue, history, instances, load_rewards(), reward=config.reward, node=config.node)
        stack.push_async_callback(rewards.close)
        await stack.enter_async_context(_running(runtime.watch_images))
        session_log = SessionLog(history)
        stack.push_async_callback(session_log.drain)
        starts = Starts(runtime, workspaces, store, session_log, config)
        stack.push_async_callback(starts.pool.close)
        lookahead = Lookahead(workspaces, starts.pool, starts.groups, wanted_s=config.pool_idle_s)
        ending = Ending(runtime, workspaces, store, history, instances, starts, rewards, config)
        stack.push_async_callback(ending.close)
        service = SessionService(
            store=store,
            history=history,
            instances=instances,
            starts=starts,
            lookahead=lookahead,
            acting=Acting(
                runtime, store, history, instances, config, dialects=actions.dialects(), tools=actions.tools()
            ),
            ending=ending,
            rewards=rewards,
            config=config,
        )
        reaper = Reaper(runtime, store, history, starts, ending, rewards, config, service.end)
        await reaper.recover()
        await stack.enter_async_context(_running(reaper.run))
        await stack.enter_async_context(_running(session_log.run))
        await stack.enter_async_context(_running(starts.pool.run))
        await stack.enter_async_context(_running(lookahead.run))
        disk = DiskWatch(runtime, store, instances, config, service.end, period_s=settings.disk_watch_s)
        await stack.enter_async_context(_running(disk.run))
        yield Parts(
            sessions=service,
            receipts=history,
            instances=instances,
            probes={"docker": runtime.ping, "redis": store.ping, "sql": database.ping},
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
