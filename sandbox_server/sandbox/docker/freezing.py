"""Freezes a container's processes, and lets them go on."""

import asyncio
from typing import Any

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.docker.engine import Engine

log = telemetry.logger(__name__)

_ATTEMPTS = 3
_AGAIN_S = 0.1


async def freeze(engine: Engine, container_id: str) -> None:
    """Freeze it. With cgroup version 1 a busy OCI runtime gives up within milliseconds, so it is tried three times.

    Raises:
        SandboxLost: it does not run. EngineUnavailable: the host cannot freeze it, or the engine does not answer.
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
    """Let it go on. Raises SandboxLost, EngineUnavailable."""
    if await is_frozen(engine, container_id):
        await engine.call(lambda api: api.unpause(container_id))


async def is_frozen(engine: Engine, container_id: str) -> bool:
    """Raises SandboxLost, EngineUnavailable."""
    found: dict[str, Any] = await engine.call(lambda api: api.inspect_container(container_id))
    return bool(found["State"].get("Paused"))
