"""Cancels the start of sessions when their client disconnects. Not a plugin, hence the underscore."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response

from sandbox_server.errors import ServiceError
from sandbox_server.protocols._wire import hung_up, json_answer, refusal

T = TypeVar("T")
Started = tuple[list[str], list[ServiceError]]
"""Sids of the sessions that started, and the errors of those that failed."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`. If the client disconnects first, cancel `work` and return None."""
    working = asyncio.create_task(work)
    left = asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        left.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def group_answer(request: Request, start: Coroutine[Any, Any, Started]) -> Response:
    """Run `start`; if the client disconnects first, cancel it, which ends the sessions that it has started."""
    started = await while_connected(request, start)
    if started is None:
        return json_answer({})  # the client has disconnected
    sids, failed = started
    return json_answer({"sids": sids, "failed": [refusal(error) for error in failed]})
