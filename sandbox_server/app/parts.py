"""The parts of the application."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.commands import Commands
from sandbox_server.boxes.copies import Copies
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.monitoring import BoxMonitoring
from sandbox_server.boxes.processes import Processes
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting
from sandbox_server.boxes.templates import TemplateBuilds
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.catalogue.session_tokens import SessionTokens
from sandbox_server.fleet.runs import Runs
from sandbox_server.insight.overview import Insight
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.sessions.base import Sessions
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.rollback import Rollback
from sandbox_server.settings import Settings
from sandbox_server.starts.fleet_view import FleetView
from sandbox_server.state.logouts import Logouts
from sandbox_server.state.nodes import Nodes
from sandbox_server.tasks import Loops

Probe = Callable[[], Awaitable[object]]
"""Returns if its part answers, else raises."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that protocols and health checks use. An optional part is None if the server does not have it."""

    sessions: Sessions
    receipts: History
    instances: Instances
    probes: Mapping[str, Probe]
    """Part -> probe, for /readyz: docker, redis, sql, node, data."""
    fleet: FleetView | None = None
    """The nodes, and what they have ready."""
    boxes: Boxes | None = None
    box_monitoring: BoxMonitoring | None = None
    """Figures and events of boxes, for their clients."""
    box_creation: BoxCreation | None = None
    copies: Copies | None = None
    """Copies of sessions for people."""
    snapshots: BoxSnapshots | None = None
    """Snapshots of boxes."""
    snapshotting: Snapshotting | None = None
    """Takes snapshots of boxes."""
    box_forks: BoxForks | None = None
    """Copies of boxes."""
    templates: TemplateBuilds | None = None
    """The images that clients build."""
    grading: BatchGrading | None = None
    """Grading of batches without a session."""
    rollouts: Rollouts | None = None
    session_tokens: SessionTokens | None = None
    """Tokens of sessions, for agents without an API key."""
    processes: Processes | None = None
    """The commands of this node's boxes."""
    commands: Commands | None = None
    """The commands whose output is kept."""
    blobs: Blobs | None = None
    """Contents that are copied into boxes of this node."""
    session_boxes: SessionBoxes | None = None
    """Access to sessions by the API of boxes."""
    runs: Runs | None = None
    """Operations on whole runs."""
    forking: Forking | None = None
    """Copies of sessions."""
    rollback: Rollback | None = None
    """Returns of sessions to earlier actions."""
    insight: Insight | None = None
    """Statistics over many sessions, for `/v1/overview` and the pages."""
    nodes: Nodes | None = None
    """Registry of the fleet's nodes, for forwarding."""
    logouts: Logouts | None = None
    """Logins to the pages that were ended."""
    loops: Loops = field(default_factory=Loops)
    """The background loops of this server."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server is draining and nothing is left to do."""


Build = Callable[[Settings], AbstractAsyncContextManager[Parts]]
"""Opens the parts and closes them in reverse order."""
