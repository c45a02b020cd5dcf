"""Images that tasks bring as a Dockerfile: built by the engine if they are missing, a bounded number at a time."""

import asyncio
import time
from functools import partial

from sandbox_server import telemetry
from sandbox_server.catalogue.harbor.archives import unpacked
from sandbox_server.catalogue.services import ImageBuild
from sandbox_server.errors import ImageUnavailable
from sandbox_server.images.preparing import Preparing
from sandbox_server.sandbox.base import Build, ImageInfo, Runtime

log = telemetry.logger(__name__)

BUILT_LABEL = "sandbox.built"
"""Marks an image that was built from a task's Dockerfile."""


class BuiltImages:
    """Builds images under names that are hashes of their inputs; concurrent requests for an image share one build."""

    def __init__(
        self, runtime: Runtime, preparing: Preparing, *, memory_mb: int = 4096, at_once: int = 1, most_s: float = 3600.0
    ) -> None:
        """`memory_mb` limits each step, `most_s` (SANDBOX_TASK_BUILD_S) each build, without its wait for a turn."""
        self._runtime = runtime
        self._preparing = preparing
        self._memory_mb = memory_mb
        self._turns = asyncio.Semaphore(at_once)
        self._most_s = most_s

    async def image(self, build: ImageBuild, what: str) -> ImageInfo:
        """The built image; `what` names the task in errors.

        Raises:
            ImageUnavailable: the build failed or took too long. EngineUnavailable.
        """
        return await self._preparing.once(build.image, partial(self._make, build, what))

    async def _make(self, build: ImageBuild, what: str) -> ImageInfo:
        how = Build(
            build.dockerfile, self._memory_mb, min(build.timeout_s, self._most_s), {BUILT_LABEL: what.encode().hex()}
        )
        async with self._turns:
            began = time.monotonic()
            try:
                made = await self._runtime.images.build(build.image, unpacked(build.context), how)
            except ImageUnavailable as error:
                raise ImageUnavailable(f"the image of {what}: {error.detail}") from error
        log.info("task image built", task=what, image=made.name, seconds=round(time.monotonic() - began, 2))
        return made
