"""The answer to a request that starts several sessions at once. Not a plugin, hence the underscore."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import Request, Response

from sandbox_server.errors import ServiceError
from sandbox_server.protocols._wire import hung_up, json_answer, refusal

Started = tuple[list[str], list[ServiceError]]
"""Sids of the sessions that started, and the errors of those that failed."""


async def group_answer(request: Request, start: Coroutine[Any, Any, Started]) -> Response:
    """Run `start`; if the client disconnects first, cancel it, which ends the sessions that it has started."""
    starting = asyncio.create_task(start)
    left = asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({starting, left}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return json_answer({})  # the client has disconnected
        sids, failed = starting.result()
    finally:
        left.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
    return json_answer({"sids": sids, "failed": [refusal(error) for error in failed]})
