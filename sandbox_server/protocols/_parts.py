"""The server's parts, by request. Not a plugin, hence the underscore."""

from typing import cast

from starlette.requests import HTTPConnection

from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.copies import Copies
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting
from sandbox_server.catalogue.instances import Instances
from sandbox_server.sessions.base import Sessions
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.rollback import Rollback
from sandbox_server.starts.fleet_view import FleetView


def sessions_of(request: HTTPConnection) -> Sessions:
    """The server's sessions."""
    return cast(Sessions, request.app.state.sessions)


def instances_of(request: HTTPConnection) -> Instances:
    """The catalogue's instances."""
    return cast(Instances, request.app.state.instances)


def boxes_of(request: HTTPConnection) -> Boxes:
    """The server's boxes."""
    return cast(Boxes, request.app.state.boxes)


def box_creation_of(request: HTTPConnection) -> BoxCreation:
    """The part that creates boxes."""
    return cast(BoxCreation, request.app.state.box_creation)


def snapshots_of(request: HTTPConnection) -> BoxSnapshots:
    """The snapshots of boxes."""
    return cast(BoxSnapshots, request.app.state.snapshots)


def snapshotting_of(request: HTTPConnection) -> Snapshotting:
    """The part that takes snapshots of boxes."""
    return cast(Snapshotting, request.app.state.snapshotting)


def forks_of(request: HTTPConnection) -> BoxForks:
    """The part that copies boxes."""
    return cast(BoxForks, request.app.state.box_forks)


def session_boxes_of(request: HTTPConnection) -> SessionBoxes:
    """The server's sessions by the API of boxes."""
    return cast(SessionBoxes, request.app.state.session_boxes)


def forking_of(request: HTTPConnection) -> Forking:
    """The part that copies sessions."""
    return cast(Forking, request.app.state.forking)


def copies_of(request: HTTPConnection) -> Copies:
    """The part that copies sessions for people to look around in."""
    return cast(Copies, request.app.state.copies)


def rollback_of(request: HTTPConnection) -> Rollback:
    """The part that returns sessions to earlier actions."""
    return cast(Rollback, request.app.state.rollback)


def fleet_of(request: HTTPConnection) -> FleetView:
    """The nodes, and what they have ready."""
    return cast(FleetView, request.app.state.fleet)
