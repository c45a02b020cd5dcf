"""Opens the parts that start, drive and end sessions and boxes on this node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from sandbox_server.actions import registry as actions
from sandbox_server.app import session_config as configs
from sandbox_server.app.data_disk import DataDisk
from sandbox_server.app.foundation import Foundation
from sandbox_server.app.gradings import Gradings
from sandbox_server.app.limits import (
    batches_of,
    box_policy,
    command_bounds,
    in_catalogue,
    snapshot_bounds,
    template_bounds,
)
from sandbox_server.app.workspaces import captures_of
from sandbox_server.boxes.allowed import AllowedImages
from sandbox_server.boxes.bases import Bases
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.commands import Commands
from sandbox_server.boxes.copies import Copies
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.hibernation import BoxHibernation, HibernationConfig
from sandbox_server.boxes.kind import BoxesKind
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.measures import Measures
from sandbox_server.boxes.planning import BoxPlans
from sandbox_server.boxes.processes import Processes
from sandbox_server.boxes.seen import BoxSeen
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.session_work import SessionWork
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.boxes.use import BoxUse
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.snapshots import Snapshots
from sandbox_server.catalogue.templates import Templates
from sandbox_server.checkpoints.lasting import LastingCheckpoints
from sandbox_server.checkpoints.objects import Objects
from sandbox_server.checkpoints.shared import SharedCheckpoints
from sandbox_server.checkpoints.store import Checkpoints
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.box_images import BoxImages
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.records import SessionKind
from sandbox_server.scoring.captures import Captures
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.checkpointing import Checkpointing
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.ends import Ends
from sandbox_server.sessions.expiry import Expiry
from sandbox_server.sessions.final_patches import FinalPatches
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.kinds import Kinds, TaskKind
from sandbox_server.sessions.origins import Origins
from sandbox_server.sessions.reaper import Reaper
from sandbox_server.sessions.rebuilding import Rebuilding
from sandbox_server.sessions.recovery import Recovery
from sandbox_server.sessions.regular import RegularCheckpoints
from sandbox_server.sessions.replay import Replay
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.rollback import Rollback
from sandbox_server.sessions.running import Running
from sandbox_server.sessions.runs import Runs
from sandbox_server.sessions.service import SessionService
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.sessions.task_starts import TaskStarts
from sandbox_server.settings import Settings
from sandbox_server.starts.fleet_view import FleetView
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import Starts


@dataclass(frozen=True, slots=True)
class BoxWork:
    """Commands and files in boxes, and in sessions by the API of boxes."""

    data_disk: DataDisk
    blobs: Blobs
    processes: Processes
    commands: Commands
    events: BoxEvents


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """The parts for sessions and boxes. Nothing is taken over from an earlier server before `recovery.recover`."""

    work: BoxWork
    log: SessionLog
    starts: Starts
    lookahead: Lookahead
    placement: Placement
    captures: Captures
    ending: Ending
    ends: Ends
    fleet: FleetView
    sessions: SessionService
    session_boxes: SessionBoxes
    boxes: Boxes
    box_seen: BoxSeen
    box_creation: BoxCreation
    copies: Copies
    box_sleep: BoxSleep
    hibernation: BoxHibernation
    snapshots: BoxSnapshots
    snapshotting: Snapshotting
    box_forks: BoxForks
    templates: TemplateBuilds
    runs: Runs
    forking: Forking
    rollback: Rollback
    sleeping: Sleeping
    kinds: Kinds
    reaper: Reaper
    recovery: Recovery


@asynccontextmanager
async def _open_work(settings: Settings, base: Foundation) -> AsyncIterator[BoxWork]:
    data_disk = DataDisk(settings.data_dir, base.faults, min_free_mb=settings.data_min_free_mb)
    blobs = Blobs(settings.data_dir / "blobs", most_bytes=int(settings.blobs_mb * 2**20), room=data_disk.room)
    async with AsyncExitStack() as stack:
        events = BoxEvents()
        processes = Processes(notes=base.state.boxes, events=events)
        stack.push_async_callback(processes.close)
        commands = Commands(processes, base.state.commands, command_bounds(settings))
        stack.push_async_callback(commands.close)
        yield BoxWork(data_disk, blobs, processes, commands, events)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """The object store behind the node's checkpoints, if there is one."""

    shared: SharedCheckpoints | None = None
    lasting: LastingCheckpoints | None = None


def _elsewhere(settings: Settings, checkpoints: Checkpoints) -> _Elsewhere:
    url, timeout_s = settings.checkpoints_url, settings.checkpoint_timeout_s
    if not url:
        return _Elsewhere()
    objects = Objects(url, timeout_s=timeout_s)
    return _Elsewhere(
        SharedCheckpoints(checkpoints, objects, timeout_s=timeout_s),
        LastingCheckpoints(checkpoints, objects, node=settings.node_id, timeout_s=timeout_s),
    )


@asynccontextmanager
async def open_sandboxes(settings: Settings, base: Foundation, gradings: Gradings) -> AsyncIterator[Sandboxes]:
    """Open the parts; they start and end nothing by themselves.

    Raises:
        EngineUnavailable. ValueError: a setting cannot be used.
    """
    runtime, workspaces, state, data, node = base.runtime, base.workspaces, base.state, base.data, settings.node_id
    rewards, localizing = gradings.rewards, gradings.localizing
    async with AsyncExitStack() as stack:
        box_history = BoxHistory(base.database)
        log = SessionLog(data.history, box_history)
        stack.push_async_callback(log.drain)
        starts = Starts(
            runtime, workspaces, data.store, log, configs.start_config(settings), base.faults, gradings.spending
        )
        stack.push_async_callback(starts.pool.close)
        ownership, placement = Ownership(state.nodes, node=node), Placement(state.nodes, node=node)
        work = await stack.enter_async_context(_open_work(settings, base))
        running = Running(
            data.store,
            configs.dialect_config(settings),
            batches_of(settings),
            localizing,
            dialects=actions.dialects(),
            tools=actions.tools(),
            runners=SessionWork(work.commands, work.blobs, longest_s=settings.restore_timeout_s).runners,
        )
        replay = Replay(running, command_timeout_s=settings.command_timeout_s)
        checkpoints = Checkpoints(
            settings.data_dir / "checkpoints", most_bytes=int(settings.checkpoints_mb * 2**20), room=work.data_disk.room
        )
        await checkpoints.open()
        elsewhere = _elsewhere(settings, checkpoints)
        if elsewhere.shared is not None:
            stack.push_async_callback(elsewhere.shared.close)
        checkpointing = Checkpointing(
            runtime.outside,
            data,
            workspaces,
            replay,
            checkpoints,
            elsewhere.shared,
            configs.checkpoint_config(settings),
        )
        sleeping = Sleeping(runtime, data, workspaces, starts, checkpointing, log, configs.sleep_config(settings))
        regular = RegularCheckpoints(data, checkpointing, configs.regular_config(settings))
        stack.push_async_callback(regular.close)
        restoring = Restoring(
            runtime,
            workspaces,
            data,
            starts,
            checkpointing,
            ownership,
            placement,
            log,
            configs.restore_config(settings),
        )
        stack.push_async_callback(restoring.close)
        lookahead = Lookahead(workspaces, starts.pool, starts.groups, wanted_s=settings.pool_idle_s, faults=base.faults)
        captures = captures_of(settings, runtime)
        stack.push_async_callback(captures.close)
        acting = Acting(runtime, data, running, restoring, sleeping, regular, configs.action_config(settings))
        patches = FinalPatches(
            data,
            workspaces,
            captures,
            rewards,
            sleeping,
            timeout_s=settings.postprocess_timeout_s,
            ending_max_s=settings.ending_max_s,
        )
        ending = Ending(
            runtime, data, patches, starts, ownership, restoring, configs.end_config(settings), acting.interrupt
        )
        stack.push_async_callback(ending.close)
        ends = Ends(data, ending, rewards, reward_wait_s=settings.reward_wait_s)
        fleet = FleetView(data.instances, state.nodes, placement, lookahead, starts.pool, node=node)
        task_starts = TaskStarts(
            data,
            starts,
            placement,
            rewards,
            localizing,
            state.runs,
            ends,
            allow_ungradable=settings.allow_ungradable,
        )
        listing = Listing(base.database)
        sessions = SessionService(data, task_starts, acting, ends, rewards, localizing, listing, fleet)
        origins = Origins(
            runtime,
            data,
            placement,
            acting,
            checkpointing,
            node=node,
            wait_s=settings.command_timeout_s + settings.action_wait_s,
        )
        forking = Forking(
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
        )
        policy = box_policy(settings, cpus=(await runtime.facts()).cpus)
        box_images = BoxImages(
            runtime, workspaces, data.instances.of_images, data.instances.by_id, raw=settings.box_raw_images
        )
        allowed = AllowedImages(runtime, policy, box_images, partial(in_catalogue, data.instances))
        templates = TemplateBuilds(
            runtime,
            Templates(base.database),
            allowed.base,
            policy,
            template_bounds(settings),
            node=node,
            alive=state.nodes.alive,
        )
        stack.push_async_callback(templates.close)
        states = BoxStates(runtime, checkpoints, timeout_s=settings.checkpoint_timeout_s)
        bases = Bases(runtime, box_images, templates)
        box_sleep = BoxSleep(runtime, data, state.boxes, log, starts, states, bases, policy)
        lives = BoxLives(runtime, data.store, state.boxes, log, box_sleep, work.events, wait_s=settings.action_wait_s)
        use = BoxUse(idle_s=settings.box_idle_s)
        seen = BoxSeen(Measures(runtime), work.events)
        kinds: Kinds = {
            SessionKind.TASK: TaskKind(data.instances, idle_s=settings.session_idle_s, disk_mb=settings.disk_mb),
            SessionKind.BOX: BoxesKind(state.boxes, box_history, lives, use, seen, node=node, disk_mb=settings.disk_mb),
        }
        expiry = Expiry(
            data,
            kinds,
            state.nodes,
            state.runs,
            ownership,
            ending,
            ends.end,
            postprocess_timeout_s=settings.postprocess_timeout_s,
        )
        rebuilding = Rebuilding(runtime, data, kinds, ownership, node=node)
        reaper = Reaper(runtime, data, kinds, ownership, restoring, starts, expiry, rebuilding, node=node)
        recovery = Recovery(data, kinds, starts, rewards, rebuilding, expiry, reaper, node=node)
        boxes = Boxes(runtime, data, state.boxes, ownership, ending, log, lives, policy, use)
        snapshots = BoxSnapshots(states, Snapshots(base.database), elsewhere.lasting, state.nodes, node=node)
        plans = BoxPlans(data.store, state.boxes, policy, allowed, templates, bases, states, snapshots)
        box_creation = BoxCreation(runtime, boxes, state.boxes, plans, starts, placement, ending, log)
        stack.push_async_callback(box_creation.close)
        snapshotting = Snapshotting(
            boxes, states, snapshots, templates, state.boxes, snapshot_bounds(settings), node=node
        )
        box_forks = BoxForks(boxes, box_creation, states, state.boxes, ending)
        stack.push_async_callback(box_forks.close)
        copies = Copies(
            origins,
            checkpointing,
            workspaces,
            starts,
            data.store,
            state.boxes,
            log,
            start_timeout_s=settings.start_timeout_s,
            max_s=policy.max_s,
        )
        session_boxes = SessionBoxes(
            acting, ending, data.store, work.commands, work.blobs, file_bytes=int(settings.journal_file_mb * 2**20)
        )
        runs = Runs(data.store, state.runs, state.nodes, node=node, end_apart=ends.end_apart)
        yield Sandboxes(
            work=work,
            log=log,
            starts=starts,
            lookahead=lookahead,
            placement=placement,
            captures=captures,
            ending=ending,
            ends=ends,
            fleet=fleet,
            sessions=sessions,
            session_boxes=session_boxes,
            boxes=boxes,
            box_seen=seen,
            box_creation=box_creation,
            copies=copies,
            box_sleep=box_sleep,
            hibernation=BoxHibernation(
                runtime,
                data,
                state.boxes,
                box_sleep,
                work.processes,
                use,
                HibernationConfig(node=node, idle_s=settings.hibernate_s),
            ),
            snapshots=snapshots,
            snapshotting=snapshotting,
            box_forks=box_forks,
            templates=templates,
            runs=runs,
            forking=forking,
            rollback=Rollback(runtime, data, workspaces, acting, running, checkpointing, log),
            sleeping=sleeping,
            kinds=kinds,
            reaper=reaper,
            recovery=recovery,
        )
