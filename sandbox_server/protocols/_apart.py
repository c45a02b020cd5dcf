"""Work that goes to its end whatever becomes of the request that asked for it. No plugin, as its name says."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request

from sandbox_server.tasks import TaskSet

T = TypeVar("T")

_SETTLE_S = 5.0
"""At shutdown: how long work under way may go on."""


@asynccontextmanager
async def settle(app: FastAPI) -> AsyncIterator[None]:
    """A router's lifespan: what was begun goes to its end also at shutdown, within a few seconds."""
    running = _running(app)
    yield
    await running.settle(_SETTLE_S)
    await running.cancel()


def spawn(request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run apart from the request, so that nothing that happens to the request cuts it off."""
    return _running(request.app).start(work, awaited=True)


def _running(app: FastAPI) -> TaskSet:
    """What is under way, of all routers."""
    if not hasattr(app.state, "apart"):
        app.state.apart = TaskSet("requests")
    return cast(TaskSet, app.state.apart)
