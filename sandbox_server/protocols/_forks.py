"""Starts copies of a session for two routes. Not a plugin, hence the underscore."""

from fastapi import Request, Response

from sandbox_server.protocols._disconnects import group_answer
from sandbox_server.protocols._parts import forking_of
from sandbox_server.protocols._wire import idempotency_key


async def copies(request: Request, sid: str, n: int, at: int | None) -> Response:
    """Start `n` copies of a session; if the client disconnects, all are discarded. Raises as `Forking.fork`."""
    key = idempotency_key(request)
    return await group_answer(request, forking_of(request).fork(sid, n, at=at, idempotency_key=key))
