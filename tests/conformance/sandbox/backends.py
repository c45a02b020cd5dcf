"""The container backends that the conformance list runs on: an engine each, and its runtimes."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.podman.engine import PodmanEngine
from sandbox_server.sandbox.podman.runtime import PodmanRuntime

PODMAN = "SANDBOX_TEST_PODMAN"
"""Names the socket of a `podman system service` that has the images; scripts/with-podman.sh starts one and sets it."""

OCI_RUNTIME = os.environ.get("SANDBOX_TEST_RUNTIME")
"""The OCI runtime of the test containers, e.g. runsc; without it the engine's own."""

GVISOR = OCI_RUNTIME == "runsc"
FIFOS = None if GVISOR else Path("/run/sandbox-server")  # gVisor's shells use the engine's stream
WITHOUT_FIFOS = "docker_attached"
"""The backend on which only the tests of a shell run again."""


def unlike_gvisor(what: str) -> pytest.MarkDecorator:
    """Skip a test on gVisor, of which `what` is true in Debian 12 (20221219); docs/architecture.md has the list."""
    return pytest.mark.skipif(GVISOR, reason=f"gVisor {what}")


LEFT_BEHIND = "cannot mark what a command leaves behind in another session"


@dataclass(frozen=True)
class Backend:
    """An engine of this machine."""

    name: str
    engine: Engine
    kind: type[DockerRuntime]
    client: tuple[str, ...]
    """The command line for the same engine."""
    init: str
    """Process 1 of a container with a shell."""
    fifos: Path | None
    """Where the FIFOs of shells lie; None: the engine carries the shells' bytes."""

    def runtime(self, node: str = "", **config: object) -> DockerRuntime:
        """A runtime that pulls nothing, under its own node name."""
        own = node or f"test-{secrets.token_hex(4)}"
        settled = {"node": own, "pull": False, "fifos": self.fifos, "oci_runtime": OCI_RUNTIME, **config}
        return self.kind(self.engine, RuntimeConfig(**settled))  # type: ignore[arg-type]


def docker(fifos: Path | None = FIFOS) -> Backend:
    """This machine's engine; without it the list is skipped, but fails in CI."""
    try:
        return _opened(None, DockerRuntime, "docker", ("docker",), "/sbin/docker-init", fifos)
    except EngineUnavailable as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(error.detail)


def docker_attached() -> Backend:
    """The same, as where FIFOs do not work."""
    return docker(None)


def podman() -> Backend:
    """Podman's service, as `make podman` starts it."""
    return _opened(
        os.environ[PODMAN], PodmanRuntime, "podman", ("podman", "--url", os.environ[PODMAN]), "/run/podman-init", None
    )


def _opened(
    url: str | None, kind: type[DockerRuntime], name: str, client: tuple[str, ...], init: str, fifos: Path | None
) -> Backend:
    return Backend(name, (PodmanEngine if url else Engine)(url, timeout_s=60), kind, client, init, fifos)


BACKENDS = [podman] if os.environ.get(PODMAN) else [docker] if GVISOR else [docker, docker_attached]
