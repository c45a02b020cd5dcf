"""Sessions of tasks where an API is for boxes. No plugin, as its name says."""

from typing import cast

from fastapi import Request

from sandbox_server.boxes.session_boxes import SessionBoxes


def sessions_of(request: Request) -> SessionBoxes:
    """The server's sessions, as boxes."""
    return cast(SessionBoxes, request.app.state.session_boxes)
