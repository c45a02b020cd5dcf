"""Containers on Podman through its Docker-compatible API (`podman system service`).

Podman's `init_path` must name an init that forwards signals to a process group: tini does, catatonit does not.
"""

from pathlib import Path

from sandbox_server.errors import ImageUnavailable
from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.podman.container import PodmanContainer
from sandbox_server.sandbox.podman.images import PodmanImages
from sandbox_server.sandbox.podman.inspector import PodmanInspector


class PodmanRuntime(DockerRuntime):
    """Like Docker's, with Podman's parts where it differs."""

    _container_of = PodmanContainer
    _images_of = PodmanImages
    _inspector_type = PodmanInspector
    # Podman looks for a mounted folder only at the start, so that one on another host fails sessions instead of FIFOs
    _fifo_runtimes = frozenset()

    @staticmethod
    def _seccomp_option(profile: Path) -> tuple[str, ...]:
        """The security option for a profile: its path, because Podman's service reads the file itself."""
        return (f"seccomp={profile}",)

    async def create(self, spec: ContainerSpec) -> BashSandbox:
        """See `sandbox.base.Runtime.create`; Podman has no network without an address of the host."""
        if spec.services:
            raise ImageUnavailable("tasks with services need the engine docker (SANDBOX_ENGINE)", absent=True)
        return await super().create(spec)

    async def remove(self, container_id: str) -> None:
        """See `sandbox.base.Runtime.remove`; Podman removes no container whose network another one still shares."""
        await self._guard.resolvers.remove(container_id)
        await super().remove(container_id)

    async def weigh(self) -> None:
        """Nothing: its Docker-compatible API cannot change a running container."""

    async def remove_leftovers(self) -> int:
        """None: no container has services here."""
        return 0
