"""Builds what ends sessions and boxes without a request, and what takes them over from an earlier server."""

from dataclasses import dataclass

from sandbox_server.app.box_parts import BoxParts
from sandbox_server.app.foundation import Foundation
from sandbox_server.app.grading_parts import Gradings
from sandbox_server.app.session_parts import SessionParts
from sandbox_server.records import SessionKind
from sandbox_server.sessions.kinds import Kinds, TaskKind
from sandbox_server.settings import Settings
from sandbox_server.upkeep.expiry import Expiry
from sandbox_server.upkeep.reaper import Reaper
from sandbox_server.upkeep.rebuilding import Rebuilding
from sandbox_server.upkeep.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The parts that serve sessions and boxes alike. Nothing is taken over before `recovery.recover`."""

    kinds: Kinds
    reaper: Reaper
    recovery: Recovery


def upkeep_of(
    settings: Settings, base: Foundation, gradings: Gradings, sessions: SessionParts, boxes: BoxParts
) -> Upkeep:
    """Build the parts."""
    runtime, data, state, node = base.runtime, base.data, base.state, settings.node_id
    ownership, starts, ending, ends = sessions.ownership, sessions.starts, sessions.ending, sessions.ends
    reconciler = sessions.reconciler
    idle_s, wait_s = settings.session_idle_s, settings.action_wait_s
    kinds: Kinds = {
        SessionKind.TASK: TaskKind(data, reconciler, idle_s=idle_s, disk_mb=settings.disk_mb, wait_s=wait_s),
        SessionKind.BOX: boxes.kind,
    }
    timeout_s = settings.postprocess_timeout_s
    expiry = Expiry(data, kinds, state.nodes, state.runs, ownership, ending, ends.end, postprocess_timeout_s=timeout_s)
    rebuilding = Rebuilding(runtime, data, kinds, ownership, reconciler, node=node)
    reaper = Reaper(
        runtime, data, kinds, ownership, sessions.restoring, starts, expiry, rebuilding, reconciler, node=node
    )
    recovery = Recovery(data, kinds, starts, gradings.rewards, rebuilding, expiry, reaper, node=node)
    return Upkeep(kinds, reaper, recovery)
