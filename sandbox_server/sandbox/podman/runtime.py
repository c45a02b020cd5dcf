"""Containers on Podman, through its API that is compatible with Docker's (`podman system service`).

Its `init_path` must name an init that passes signals on to a process group, as tini does and catatonit does not.
"""

from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.podman.container import PodmanContainer
from sandbox_server.sandbox.podman.images import PodmanImages
from sandbox_server.sandbox.podman.outside import PodmanOutside


class PodmanRuntime(DockerRuntime):
    """Docker's, but for what Podman does otherwise."""

    _container_of = PodmanContainer
    _images_of = PodmanImages
    _outside_of = PodmanOutside
