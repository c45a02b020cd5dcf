"""Work that goes to its end whatever becomes of the request that asked for it. No plugin, as its name says."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request

T = TypeVar("T")

_SETTLE_S = 5.0
"""At shutdown: how long work under way may go on."""


@asynccontextmanager
async def settle(app: FastAPI) -> AsyncIterator[None]:
    """A router's lifespan: what was begun goes to its end also at shutdown, within a few seconds."""
    running = _running(app)
    yield
    if running:
        await asyncio.wait(running, timeout=_SETTLE_S)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def spawn(request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run apart from the request, so that nothing that happens to the request cuts it off."""
    running = _running(request.app)
    task = asyncio.create_task(work)
    running.add(task)
    task.add_done_callback(running.discard)
    return task


def _running(app: FastAPI) -> set[asyncio.Task[Any]]:
    """What is under way, of all routers."""
    if not hasattr(app.state, "apart"):
        app.state.apart = set()
    return cast(set[asyncio.Task[Any]], app.state.apart)
