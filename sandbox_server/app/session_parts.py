"""Opens the parts that start, drive and end sessions on this node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sandbox_server.actions import registry as actions
from sandbox_server.app import session_config as configs
from sandbox_server.app.box_work import BoxWork, open_work
from sandbox_server.app.foundation import Foundation
from sandbox_server.app.grading_parts import Gradings
from sandbox_server.app.limits import batches_of
from sandbox_server.app.workspaces import captures_of
from sandbox_server.boxes.session_work import SessionWork
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.checkpoints.objects import Objects
from sandbox_server.checkpoints.permanent import PermanentCheckpoints
from sandbox_server.checkpoints.shared import SharedCheckpoints
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.fleet.placement import Placement
from sandbox_server.fleet.runs import Runs
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.scoring.captures import Captures
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.checkpointing import Checkpointing
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.sessions.ends import Ends
from sandbox_server.sessions.final_patches import FinalPatches
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.origins import Origins
from sandbox_server.sessions.redis_reconciler import RedisReconciler
from sandbox_server.sessions.regular_checkpoints import RegularCheckpoints
from sandbox_server.sessions.replay import Replay
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.rollback import Rollback
from sandbox_server.sessions.running import Running
from sandbox_server.sessions.service import SessionService
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.sessions.task_starts import TaskStarts
from sandbox_server.settings import Settings
from sandbox_server.starts.fleet_view import FleetView
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import Starts
from sandbox_server.starts.steps import Steps


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The node's checkpoints, and the object store behind them, if there is one."""

    checkpoints: Checkpoints
    checkpointing: Checkpointing
    lasting: PermanentCheckpoints | None


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The parts for sessions; boxes start, end and are stored by some of them too."""

    log: SessionLog
    starts: Starts
    work: BoxWork
    ownership: Ownership
    placement: Placement
    lookahead: Lookahead
    checkpointed: Checkpointed
    sleeping: Sleeping
    restoring: Restoring
    reconciler: RedisReconciler
    acting: Acting
    captures: Captures
    ending: SessionEnder
    ends: Ends
    fleet: FleetView
    service: SessionService
    runs: Runs
    origins: Origins
    forking: Forking
    rollback: Rollback


def _running(settings: Settings, base: Foundation, gradings: Gradings, work: BoxWork) -> Running:
    return Running(
        base.data.store,
        configs.dialect_config(settings),
        batches_of(settings),
        gradings.localizing,
        dialects=actions.dialects(),
        tools=actions.tools(),
        runners=SessionWork(work.commands, work.blobs, longest_s=settings.restore_timeout_s).runners,
    )


@asynccontextmanager
async def _open_checkpoints(
    settings: Settings, base: Foundation, work: BoxWork, running: Running, steps: Steps
) -> AsyncIterator[Checkpointed]:
    checkpoints = Checkpoints(
        settings.data_dir / "checkpoints", most_bytes=int(settings.checkpoints_mb * 2**20), room=work.data_disk.room
    )
    await checkpoints.open()
    url, timeout_s = settings.checkpoints_url, settings.checkpoint_timeout_s
    shared, lasting = None, None
    async with AsyncExitStack() as stack:
        if url:
            objects = Objects(url, timeout_s=timeout_s)
            shared = SharedCheckpoints(checkpoints, objects, timeout_s=timeout_s)
            stack.push_async_callback(shared.close)
            lasting = PermanentCheckpoints(checkpoints, objects, node=settings.node_id, timeout_s=timeout_s)
        checkpointing = Checkpointing(
            base.runtime.inspector,
            base.data,
            base.workspaces,
            Replay(running, command_timeout_s=settings.command_timeout_s),
            checkpoints,
            shared,
            steps,
            configs.checkpoint_config(settings),
        )
        yield Checkpointed(checkpoints, checkpointing, lasting)


@asynccontextmanager
async def open_sessions(settings: Settings, base: Foundation, gradings: Gradings) -> AsyncIterator[SessionParts]:
    """Open the parts; they start and end nothing by themselves. Raises ValueError: a setting cannot be used."""
    runtime, workspaces, state, data, node = base.runtime, base.workspaces, base.state, base.data, settings.node_id
    rewards, localizing = gradings.rewards, gradings.localizing
    async with AsyncExitStack() as stack:
        log = SessionLog(data.history, BoxHistory(base.database))
        stack.push_async_callback(log.drain)
        starts = Starts(
            runtime, workspaces, data.store, log, configs.start_config(settings), base.faults, gradings.spending
        )
        stack.push_async_callback(starts.pool.close)
        ownership, placement = Ownership(state.nodes, node=node), Placement(state.nodes, node=node)
        work = await stack.enter_async_context(open_work(settings, base))

        running = _running(settings, base, gradings, work)
        bounds = configs.step_bounds(settings)
        steps = Steps(data.store, data.history, data.instances, workspaces, rewards, bounds)
        checkpointed = await stack.enter_async_context(_open_checkpoints(settings, base, work, running, steps))
        checkpointing = checkpointed.checkpointing
        sleeping = Sleeping(runtime, data, workspaces, starts, checkpointing, log, configs.sleep_config(settings))
        regular = RegularCheckpoints(data, checkpointing, configs.regular_config(settings))
        stack.push_async_callback(regular.close)
        restore_config = configs.restore_config(settings)
        restoring = Restoring(
            runtime, workspaces, data, starts, checkpointing, ownership, placement, log, restore_config
        )
        stack.push_async_callback(restoring.close)
        reconciler = RedisReconciler(runtime, data, log, node=node)
        action_config = configs.action_config(settings)
        acting = Acting(runtime, data, running, restoring, sleeping, regular, reconciler, action_config)

        captures = captures_of(settings, runtime)
        stack.push_async_callback(captures.close)
        patches = FinalPatches(
            data,
            workspaces,
            captures,
            rewards,
            sleeping,
            timeout_s=settings.postprocess_timeout_s,
            ending_max_s=settings.ending_max_s,
        )
        end_config = configs.end_config(settings)
        ending = SessionEnder(
            runtime, data, patches, starts, ownership, restoring, reconciler, end_config, acting.interrupt
        )
        stack.push_async_callback(ending.close)
        ends = Ends(data, ending, rewards, reward_wait_s=settings.reward_wait_s)

        lookahead = Lookahead(workspaces, starts.pool, starts.groups, wanted_s=settings.pool_idle_s, faults=base.faults)
        fleet = FleetView(data.instances, state.nodes, placement, lookahead, starts.pool, node=node)
        ungradable = settings.allow_ungradable
        task_starts = TaskStarts(
            data, starts, placement, steps, rewards, localizing, state.runs, ends, allow_ungradable=ungradable
        )
        listing = Listing(base.database)
        wait_s = settings.command_timeout_s + settings.action_wait_s
        origins = Origins(runtime, data, placement, acting, checkpointing, node=node, wait_s=wait_s)
        yield SessionParts(
            log=log,
            starts=starts,
            work=work,
            ownership=ownership,
            placement=placement,
            lookahead=lookahead,
            checkpointed=checkpointed,
            sleeping=sleeping,
            restoring=restoring,
            reconciler=reconciler,
            acting=acting,
            captures=captures,
            ending=ending,
            ends=ends,
            fleet=fleet,
            service=SessionService(data, task_starts, acting, ends, rewards, localizing, listing),
            runs=Runs(data.store, state.runs, state.nodes, node=node, end_detached=ends.end_detached),
            origins=origins,
            forking=Forking(
                data,
                workspaces,
                starts,
                origins,
                checkpointing,
                listing,
                state.runs,
                ends.close,
                start_timeout_s=settings.start_timeout_s,
                session_max_s=settings.session_max_s,
            ),
            rollback=Rollback(runtime, data, workspaces, acting, running, checkpointing, log),
        )
