"""Opens the parts that start, drive and end boxes on this node, and that offer their API on sessions."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from sandbox_server.app.foundation import Foundation
from sandbox_server.app.limits import box_policy, in_catalogue, snapshot_bounds, template_bounds
from sandbox_server.app.session_parts import SessionParts
from sandbox_server.boxes.allowed_images import AllowedImages
from sandbox_server.boxes.base_images import BaseImages
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.copies import Copies
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.hibernation import BoxHibernation, HibernationConfig
from sandbox_server.boxes.kind import BoxesKind
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.boxes.measures import Measures
from sandbox_server.boxes.monitoring import BoxMonitoring
from sandbox_server.boxes.planning import BoxPlans
from sandbox_server.boxes.policy import BoxPolicy
from sandbox_server.boxes.redis_reconciler import BoxRedisReconciler
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting
from sandbox_server.boxes.states import BoxStates
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.boxes.use import BoxUse
from sandbox_server.catalogue.boxes import BoxHistory
from sandbox_server.catalogue.snapshots import Snapshots
from sandbox_server.catalogue.templates import Templates
from sandbox_server.images.box_images import BoxImages
from sandbox_server.settings import Settings


@dataclass(frozen=True, slots=True)
class BoxParts:
    """The parts for boxes."""

    kind: BoxesKind
    boxes: Boxes
    monitoring: BoxMonitoring
    creation: BoxCreation
    copies: Copies
    sleep: BoxSleep
    hibernation: BoxHibernation
    snapshots: BoxSnapshots
    snapshotting: Snapshotting
    forks: BoxForks
    templates: TemplateBuilds
    of_sessions: SessionBoxes


@asynccontextmanager
async def open_boxes(settings: Settings, base: Foundation, sessions: SessionParts) -> AsyncIterator[BoxParts]:
    """Open the parts; they start and end nothing by themselves.

    Raises:
        EngineUnavailable. ValueError: a setting cannot be used.
    """
    runtime, workspaces, state, data, node = base.runtime, base.workspaces, base.state, base.data, settings.node_id
    facts, log, starts, work, ending = state.boxes, sessions.log, sessions.starts, sessions.work, sessions.ending
    checkpoints = sessions.checkpointed
    policy = box_policy(settings, cpus=(await runtime.facts()).cpus)
    async with AsyncExitStack() as stack:
        by_id, of_images = data.instances.by_id, data.instances.of_images
        box_images = BoxImages(runtime, workspaces, of_images, by_id, raw=settings.box_raw_images)
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
        states = BoxStates(runtime, checkpoints.checkpoints, timeout_s=settings.checkpoint_timeout_s)
        bases = BaseImages(runtime, box_images, templates)
        sleep = BoxSleep(runtime, data, facts, log, starts, states, bases, policy)
        history, wait_s = BoxHistory(base.database), settings.action_wait_s
        reconciler = BoxRedisReconciler(data, facts, history, log)
        lives = BoxLives(runtime, data.store, facts, log, sleep, work.events, reconciler, wait_s=wait_s)
        use = BoxUse(idle_s=settings.box_idle_s)
        monitoring = BoxMonitoring(Measures(runtime), work.events)
        boxes = Boxes(runtime, data, facts, sessions.ownership, ending, reconciler, lives, policy, use)
        snapshots = BoxSnapshots(states, Snapshots(base.database), checkpoints.lasting, state.nodes, node=node)
        plans = BoxPlans(data.store, facts, policy, allowed, templates, bases, states, snapshots)
        creation = BoxCreation(runtime, boxes, facts, plans, starts, sessions.placement, ending, log)
        stack.push_async_callback(creation.close)
        forks = BoxForks(boxes, creation, states, facts, ending)
        stack.push_async_callback(forks.close)
        hibernation_config = HibernationConfig(node=node, idle_s=settings.hibernate_s)
        file_bytes = int(settings.journal_file_mb * 2**20)
        yield BoxParts(
            kind=BoxesKind(facts, history, lives, use, monitoring, node=node, disk_mb=settings.disk_mb),
            boxes=boxes,
            monitoring=monitoring,
            creation=creation,
            copies=_copies(settings, base, sessions, policy),
            sleep=sleep,
            hibernation=BoxHibernation(runtime, data, facts, sleep, work.processes, use, hibernation_config),
            snapshots=snapshots,
            snapshotting=Snapshotting(boxes, states, snapshots, templates, facts, snapshot_bounds(settings), node=node),
            forks=forks,
            templates=templates,
            of_sessions=SessionBoxes(
                sessions.acting, ending, data.store, work.commands, work.blobs, file_bytes=file_bytes
            ),
        )


def _copies(settings: Settings, base: Foundation, sessions: SessionParts, policy: BoxPolicy) -> Copies:
    return Copies(
        sessions.origins,
        sessions.checkpointed.checkpointing,
        base.workspaces,
        sessions.starts,
        base.data.store,
        base.state.boxes,
        sessions.log,
        start_timeout_s=settings.start_timeout_s,
        max_s=policy.max_s,
    )
