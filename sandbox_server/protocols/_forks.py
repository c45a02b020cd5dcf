"""Copies of sessions for the routes that start them. Not a plugin, hence the underscore."""

from typing import cast

from fastapi import Request, Response

from sandbox_server.boxes.copies import Copies
from sandbox_server.errors import InfrastructureError
from sandbox_server.protocols._group import group_answer
from sandbox_server.protocols._wire import idempotency_key
from sandbox_server.sessions.forking import Forking
from sandbox_server.sessions.rollback import Rollback


async def copies(request: Request, sid: str, n: int, at: int | None) -> Response:
    """Start `n` copies of a session; if the client disconnects, all are discarded. Raises as `Forking.fork`."""
    key = idempotency_key(request)
    return await group_answer(request, forking(request).fork(sid, n, at=at, idempotency_key=key))


def forking(request: Request) -> Forking:
    """The server's part that makes copies. Raises InfrastructureError: it has none."""
    found = request.app.state.forking
    if found is None:
        raise InfrastructureError("this server makes no copies of sessions")
    return cast(Forking, found)


def openings(request: Request) -> Copies:
    """The server's part that makes copies for people. Raises InfrastructureError: it has none."""
    found = request.app.state.copies
    if found is None:
        raise InfrastructureError("this server makes no copies of sessions")
    return cast(Copies, found)


def returns(request: Request) -> Rollback:
    """The server's part that takes sessions back. Raises InfrastructureError: it has none."""
    found = request.app.state.rollback
    if found is None:
        raise InfrastructureError("this server takes no sessions back")
    return cast(Rollback, found)
