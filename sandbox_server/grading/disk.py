"""Bounds what a grading may write: the engine has no quota for a container's writable layer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.base import Runtime

log = telemetry.logger(__name__)

LOOK_S = 2.0
"""Pause between two measurements of one container's layer; tests that end sooner are not measured."""


class DiskExceeded(Exception):
    """The container wrote more than it may, and was removed."""


@asynccontextmanager
async def disk_bounded(runtime: Runtime, container_id: str, limit_mb: int) -> AsyncIterator[None]:
    """Remove the container if its layer grows past `limit_mb` during the block.

    Raises:
        DiskExceeded: it did; raised instead of whatever the block raised.

    """
    used_mb = 0

    async def watch() -> None:
        nonlocal used_mb
        while used_mb <= limit_mb:
            await asyncio.sleep(LOOK_S)
            with suppress(ServiceError):  # the grading itself meets an engine that does not answer
                used_mb = (await runtime.disk_usage(container_id)).get(container_id, 0) >> 20
        log.warning("a grading wrote too much", container_id=container_id, mb=used_mb, limit_mb=limit_mb)
        with suppress(ServiceError):
            await runtime.remove(container_id)

    watching = asyncio.create_task(watch())
    try:
        yield
    except ServiceError:
        if used_mb <= limit_mb:
            raise
    finally:
        watching.cancel()
    if used_mb > limit_mb:
        raise DiskExceeded(f"the tests wrote {used_mb} MB, more than their limit of {limit_mb} MB (SANDBOX_DISK_MB)")
