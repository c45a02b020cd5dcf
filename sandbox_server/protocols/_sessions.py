"""The server's boxes, and its task sessions through the API of boxes. Not a plugin, hence the underscore."""

from typing import cast

from starlette.requests import Request

from sandbox_server.boxes.boxes import Boxes
from sandbox_server.boxes.creation import BoxCreation
from sandbox_server.boxes.forks import BoxForks
from sandbox_server.boxes.session_boxes import SessionBoxes
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.boxes.snapshotting import Snapshotting


def boxes_of(request: Request) -> Boxes:
    """The server's boxes."""
    return cast(Boxes, request.app.state.boxes)


def box_creation_of(request: Request) -> BoxCreation:
    """What creates boxes."""
    return cast(BoxCreation, request.app.state.box_creation)


def snapshots_of(request: Request) -> BoxSnapshots:
    """The snapshots of boxes."""
    return cast(BoxSnapshots, request.app.state.snapshots)


def snapshotting_of(request: Request) -> Snapshotting:
    """What takes snapshots of boxes."""
    return cast(Snapshotting, request.app.state.snapshotting)


def forks_of(request: Request) -> BoxForks:
    """What copies boxes."""
    return cast(BoxForks, request.app.state.box_forks)


def sessions_of(request: Request) -> SessionBoxes:
    """The server's sessions, through the API of boxes."""
    return cast(SessionBoxes, request.app.state.session_boxes)
