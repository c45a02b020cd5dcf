"""Freezes a container's processes, and lets them go on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.engine import Engine

log = telemetry.logger(__name__)
T = TypeVar("T")

_ATTEMPTS = 3
_AGAIN_S = 0.1
_SLOW_S = 2.0
"""A call for a container that is to be thawed or removed, and that takes longer, may be held up by a frozen process."""


async def freeze(engine: Engine, container_id: str) -> None:
    """Freeze the container's processes, in up to three tries: with cgroup version 1 a busy OCI runtime soon gives up.

    Raises:
        SandboxLost: the container does not run. EngineUnavailable: the host cannot freeze it, or the engine does not
            answer.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        if await is_frozen(engine, container_id):
            return
        try:
            await engine.call(lambda api: api.pause(container_id))
            return
        except EngineUnavailable as error:
            if engine.fault or attempt == _ATTEMPTS:
                raise
            log.info("could not freeze a container", container_id=container_id, attempt=attempt, error=error.detail)
            await asyncio.sleep(_AGAIN_S)


async def thaw(engine: Engine, container_id: str) -> None:
    """Let the container's processes go on. Raises SandboxLost, EngineUnavailable."""
    if await thaw_if_slow(engine, container_id, is_frozen(engine, container_id)):
        await engine.call(lambda api: api.unpause(container_id))


async def thaw_if_slow(engine: Engine, container_id: str, call: Coroutine[Any, Any, T]) -> T:
    """The result of `call`; if it takes too long, the container is thawed by the kernel.

    A process that starts in a container just as this is paused may be frozen before its start is complete. The engine
    waits for that process and answers no other call for the container, not even one that would thaw it.
    """
    calling = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait({calling}, timeout=_SLOW_S))[0]:
            try:
                thawed = engine.local and await asyncio.to_thread(cgroup.thaw, container_id)
            except OSError as error:
                log.warning("a container cannot be thawed from here", container_id=container_id, error=str(error))
                break
            if thawed:
                log.warning("thawed a container that held up the engine", container_id=container_id)
        return await calling
    finally:
        calling.cancel()


async def is_frozen(engine: Engine, container_id: str) -> bool:
    """Raises SandboxLost, EngineUnavailable."""
    found: dict[str, Any] = await engine.call(lambda api: api.inspect_container(container_id))
    return bool(found["State"].get("Paused"))
