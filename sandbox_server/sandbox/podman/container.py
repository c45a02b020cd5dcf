"""One container of a Podman engine."""

import asyncio

from sandbox_server.sandbox.docker.container import DockerContainer

_CLEANED_S = 30  # for Podman's own process to clean up after a container's end, on a busy host


class PodmanContainer(DockerContainer):
    """Like Docker's, but Podman cleans up an ended container in its own process, which would close a new terminal."""

    async def attach(self, terminal: asyncio.Protocol) -> None:
        """See `Container.attach`."""
        status = (await self._inspect())["State"]["Status"]
        if status not in ("created", "running", "paused"):
            await self._engine.call(lambda api: api.wait(self._id, timeout=_CLEANED_S))
        await super().attach(terminal)
