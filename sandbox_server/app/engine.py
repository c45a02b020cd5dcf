"""The container engine of a node, and its disk."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sandbox_server.app.limits import image_rules, runtime_config
from sandbox_server.catalogue.instances import Instances
from sandbox_server.images.engine_disk import DiskMarks, EngineDisk
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sandbox.image_names import tagged
from sandbox_server.sandbox.podman.engine import PodmanEngine, podman_url
from sandbox_server.sandbox.podman.runtime import PodmanRuntime
from sandbox_server.settings import Settings
from sandbox_server.state.store import Store


def engine_url(settings: Settings) -> str | None:
    """URL of the engine in the settings; None: DOCKER_HOST, or Docker's local socket if it is unset.

    Raises:
        EngineUnavailable: the settings ask for Podman, name no socket, and none is at its standard places.
    """
    if settings.engine == "podman" and not settings.docker_url and not os.environ.get("DOCKER_HOST"):
        return podman_url()
    return settings.docker_url


@asynccontextmanager
async def open_runtime(settings: Settings, *, guest: str = "", faults: Faults | None = None) -> AsyncIterator[Runtime]:
    """The runtime of the engine in the settings; it reports to `faults` when the engine does not answer.

    `guest`: name of a command-line process beside the node's server; the server's reaper spares its containers.

    Raises:
        EngineUnavailable: the engine does not answer, or is not the one in the settings.
    """
    podman = settings.engine == "podman"
    engine = await asyncio.to_thread(
        PodmanEngine if podman else Engine,
        engine_url(settings),
        timeout_s=settings.docker_timeout_s,
        failures=settings.breaker_failures,
        fault=partial((faults or Faults()).tell, "daemon"),
    )
    runtime = (PodmanRuntime if podman else DockerRuntime)(engine, runtime_config(settings, guest))
    try:
        yield runtime
    finally:
        runtime.close()


async def disk_path(settings: Settings, runtime: Runtime) -> Path:
    """A path on the engine's disk; the data folder if the engine's folder is not visible here."""
    engine = Path((await runtime.facts()).root_dir)
    return settings.disk_path or (engine if await asyncio.to_thread(engine.is_dir) else settings.data_dir)


async def engine_disk_of(
    settings: Settings, runtime: Runtime, store: Store, instances: Instances, faults: Faults
) -> EngineDisk:
    """Watches the engine's disk and removes images, as the settings say."""

    async def catalogue() -> frozenset[str]:
        return frozenset(map(tagged, await instances.images()))

    return EngineDisk(
        runtime,
        store.image_uses(),
        catalogue,
        faults,
        path=await disk_path(settings, runtime),
        marks=DiskMarks(settings.disk_high_pct, settings.disk_low_pct, settings.disk_refuse_pct),
        rules=image_rules(settings),
    )
