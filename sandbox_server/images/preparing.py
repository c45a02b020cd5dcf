"""Makes images: runs commands in a container of an image and commits it under a name, once per name."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from sandbox_server import clock, telemetry
from sandbox_server.errors import ImageUnavailable, SandboxDiskFull, SandboxExhausted, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox

log = telemetry.logger(__name__)

REPOSITORY = "sandbox-prepared"
"""These images are named `sandbox-prepared:<tag>`; the tag contains a hash of all inputs."""


class Preparing:
    """Makes missing images. An image gets its name in the last step, so a failed attempt leaves no image."""

    def __init__(self, runtime: Runtime, *, limits: Limits, timeout_s: float) -> None:
        """`timeout_s` bounds each command."""
        self._runtime = runtime
        self._limits = limits
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[ImageInfo]] = {}

    async def once(self, name: str, make: Callable[[], Awaitable[ImageInfo]]) -> ImageInfo:
        """The image `name`, made by `make()` if it is not on the engine; concurrent calls share one `make()`.

        Raises:
            The errors of `make`; the next call tries again.

        """
        if found := await self._runtime.images.find(name):
            return found
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(_awaited(make))
            task.add_done_callback(lambda _: self._running.pop(name, None))
        # the cancellation of one caller must not cancel the preparation for the others
        return await asyncio.shield(task)

    async def freeze(
        self,
        name: str,
        image: str,
        change: Callable[[Sandbox], Awaitable[Mapping[str, str]]],
        *,
        env: Mapping[str, str] | None = None,
        network: str = "none",
    ) -> ImageInfo:
        """Run `change` in a container of `image` and commit it as `name` with the labels that `change` returns.

        Raises:
            ImageUnavailable, EngineUnavailable, CapacityError, and the errors of `change`.

        """
        began = time.monotonic()
        spec = ContainerSpec(
            image=image,
            role=Role.PREPARE,
            sid="",
            deadline=clock.today() + timedelta(seconds=self._timeout_s + 60),
            env=env or {},
            network=network,
            limits=self._limits,
            with_shell=False,
        )
        sandbox = await self._runtime.create(spec)
        try:
            made = await self._runtime.images.commit(sandbox.container_id, name, await change(sandbox))
        except (SandboxLost, SandboxDiskFull, SandboxExhausted) as e:
            raise ImageUnavailable(
                f"preparing an image from {image} broke off: {e.detail}; the next start tries again"
            ) from e
        finally:
            await asyncio.shield(self._remove(sandbox.container_id))
        log.info("image prepared", image=image, prepared=name, seconds=round(time.monotonic() - began, 2))
        return made

    async def run(self, sandbox: Sandbox, argv: Sequence[str], *, cwd: str, what: str, stdin: bytes = b"") -> str:
        """Run `argv` as root and return its output; `what`: the subject for the error, with a hint for the repair.

        Raises:
            ImageUnavailable: the command failed or timed out.

        """
        done = await sandbox.exec(argv, timeout_s=self._timeout_s, cwd=cwd, user="root", stdin=stdin)
        if done.exit_code != 0:
            said = (done.stderr.text() or done.stdout.text()).strip()[-500:]
            how = "did not end" if done.timed_out else f"failed with {done.exit_code}"
            raise ImageUnavailable(f"preparing the image of {what} {how}: {said or 'no output'}")
        return done.stdout.text().strip()

    async def _remove(self, container_id: str) -> None:
        try:
            await self._runtime.remove(container_id)
        except ServiceError:
            log.warning("prepare container left to the reaper", container_id=container_id, exc_info=True)


async def _awaited(make: Callable[[], Awaitable[ImageInfo]]) -> ImageInfo:
    return await make()
