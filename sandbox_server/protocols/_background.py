"""Work that outlives the request that started it. Not a plugin, hence the underscore."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request

from sandbox_server.tasks import TaskSet

T = TypeVar("T")

_SETTLE_S = 5.0
"""Seconds that running work may take to end at shutdown."""


@asynccontextmanager
async def settle(app: FastAPI) -> AsyncIterator[None]:
    """A router's lifespan: at shutdown, wait a few seconds for running work to end."""
    running = _running(app)
    yield
    await running.settle(_SETTLE_S)
    await running.cancel()


def spawn(request: Request, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run `work` independently of the request, so that a closed connection does not cancel it."""
    return _running(request.app).start(work, awaited=True)


def _running(app: FastAPI) -> TaskSet:
    """The tasks that requests have started by `spawn`."""
    if not hasattr(app.state, "apart"):
        app.state.apart = TaskSet("requests")
    return cast(TaskSet, app.state.apart)
