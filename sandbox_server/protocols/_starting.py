"""Starts a session for a request; ends it if the client hangs up meanwhile. Not a plugin, hence the underscore."""

import asyncio

from fastapi import Request

from sandbox_server.errors import ServiceError
from sandbox_server.protocols._background import spawn
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._wire import hung_up, idempotency_key, key_owner, run_started
from sandbox_server.sessions.base import Sessions
from sandbox_server.telemetry import logger

log = logger(__name__)


async def started(request: Request, instance: int | str, *, after: str = "") -> str | None:
    """Start a session of the instance with this hash or id; None: the client has hung up and no session is left.

    Call it after the body has been read. The header Sandbox-Run names the session's run, Idempotency-Key identifies a
    repeated request. `after`: see `Sessions.start`.

    Raises:
        MalformedRequest, RunOfAnother; the errors of `Sessions.start`.
    """
    run = await run_started(request)
    sessions = sessions_of(request)
    start = sessions.start(
        instance, run=run, owner=key_owner(request), idempotency_key=idempotency_key(request), after=after
    )
    starting = spawn(request, start)
    left = asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({starting, left}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            starting.cancel()  # in the queue it would delay the starts of clients that are still connected
            spawn(request, _give_back(sessions, starting, idempotency_key(request)))
            return None
        return starting.result()
    except asyncio.CancelledError:
        spawn(request, _give_back(sessions, starting, idempotency_key(request)))
        raise
    finally:
        left.cancel()


async def _give_back(sessions: Sessions, starting: asyncio.Task[str], key: str) -> None:
    """End a session whose client disconnected before it got the sid, unless a repeated request has got it."""
    await asyncio.wait({starting})
    if starting.cancelled():
        log.info("the client disconnected during its start; the start was cancelled")
        return
    try:
        sid = starting.result()
        closed = await sessions.give_back(sid, idempotency_key=key)
        what = "closed" if closed else "given to a repeated request"
        log.info(f"the client disconnected during its start; the session was {what}", sid=sid)
    except ServiceError as error:  # there is no session, or the reaper will end it when idle
        log.info("a start failed after its client had disconnected", code=error.code, error=error.detail)
