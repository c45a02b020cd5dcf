"""Services: containers beside a sandbox, on a network of their own, that are created and removed with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal, Protocol

NETWORKS = IPv4Network("10.213.0.0/16")
Condition = Literal["started", "healthy", "completed"]
"""The condition of a dependency: the service was started, its health check succeeded, or it exited with 0."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check: a command in a container that exits with 0 once the container can be used."""

    test: tuple[str, ...]
    interval_s: float = 1.0
    timeout_s: float = 30.0
    retries: int = 0
    """Failures in a row after `start_period_s` that are final; 0: only the limit on the whole start ends the check."""
    start_period_s: float = 0.0
    start_interval_s: float = 1.0
    """Pause after a failure within `start_period_s`."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """The spec of the container of a service. Its network leads neither outside nor to the host."""

    name: str
    image: str
    aliases: tuple[str, ...] = ()
    hostname: str = ""
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    user: str = ""
    files: bytes = b""
    """Extracted at / before it starts: a gzipped tar archive."""
    volumes: tuple[tuple[str, str], ...] = ()
    """(path, name of an in-memory volume that the services of one sandbox share)."""
    tmpfs: tuple[str, ...] = ()
    health: HealthCheck | None = None
    """None: the image's own, if it has one."""
    after: tuple[tuple[str, Condition], ...] = ()
    """(service, condition that must hold before this one starts)."""
    restart: bool = False
    memory_mb: int | None = None
    """At most `ServiceBounds.memory_mb`, which is also the default."""
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceBounds:
    """Limits on the services of one sandbox."""

    memory_mb: int = 1024
    """Limit for each service."""
    cpus: float = 1.0
    """Limit for each service."""
    pids: int = 256
    """Limit for each service."""
    volume_mb: int = 256
    """Limit for each volume and tmpfs. They are in memory, because the engine has no quota for volumes on disk."""
    start_s: float = 120.0
    """Limit until all run and are healthy."""
    networks: IPv4Network = NETWORKS
    """Range from which the networks of services are taken. The host has no address in them."""


class Services(Protocol):
    """Reaches into the running services of a sandbox; `container_id` is the sandbox's own."""

    async def run(
        self, container_id: str, service: str, argv: Sequence[str], *, user: str, timeout_s: float
    ) -> int | None:
        """Run a command in the service's container; its exit code, or None if it still runs after `timeout_s`.

        `user`: "" is that of the service's container.

        Raises:
            SandboxLost: the service is gone or does not run. EngineUnavailable: also for a program that is not there.
        """
        ...

    async def archive(self, container_id: str, service: str, path: str, *, max_bytes: int) -> bytes | None:
        """A file or folder of the service, running or not, as a tar archive whose names begin with the last part of
        `path`; None if there is none. What is in a tmpfs is not seen.

        Raises:
            OverflowError: it is longer than `max_bytes`. SandboxLost: the service is gone. EngineUnavailable.
        """
        ...
