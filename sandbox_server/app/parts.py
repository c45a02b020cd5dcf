"""What the application is made of."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.commands import Commands
from sandbox_server.boxes.processes import Processes
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.insight.overview import Insight
from sandbox_server.scoring.batch_grading import BatchGrading
from sandbox_server.sessions.base import Sessions
from sandbox_server.sessions.runs import Runs
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import Nodes
from sandbox_server.tasks import Loops

Probe = Callable[[], Awaitable[object]]
"""Returns when its part answers, raises when it does not."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that protocols and health checks speak to."""

    sessions: Sessions
    receipts: History
    instances: Instances
    probes: Mapping[str, Probe]
    """Part -> probe, for /readyz: docker, redis, sql, node."""
    boxes: Boxes | None = None
    """None: this server has none."""
    grading: BatchGrading | None = None
    """Of batches without a session; None: there is none."""
    rollouts: Rollouts | None = None
    processes: Processes | None = None
    """The commands of this node's boxes."""
    commands: Commands | None = None
    """Those of them whose output is kept."""
    blobs: Blobs | None = None
    """What boxes of this node get copies of."""
    session_boxes: SessionBoxes | None = None
    """Sessions by the API of boxes."""
    runs: Runs | None = None
    """Trainers' runs as a whole; None: there are none."""
    insight: Insight | None = None
    """What is known of many sessions; None: `/v1/overview` and the pages are not there."""
    nodes: Nodes | None = None
    """Where requests for sessions of other nodes go; None: there are none."""
    loops: Loops = field(default_factory=Loops)
    """The background work of this server."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server was asked to drain and nothing is left to do."""


Build = Callable[[Settings], AbstractAsyncContextManager[Parts]]
"""Opens the parts and closes them in reverse order."""
