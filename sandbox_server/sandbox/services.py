"""Services: containers that stand beside a sandbox on a network of their own, made and removed with it."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal

NETWORKS = IPv4Network("10.213.0.0/16")
Condition = Literal["started", "healthy", "completed"]
"""What a container waits for: that a service was started, that its health check succeeded, that it ended with 0."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command in a service's container that ends with 0 once the service can be used."""

    test: tuple[str, ...]
    interval_s: float = 1.0
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service's container at its creation. It has no way out of its network, and none to the host."""

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
    """Placed before its start: a gzipped tar archive with names relative to /."""
    volumes: tuple[tuple[str, str], ...] = ()
    """(path, name of a volume in memory that the services of one sandbox share)."""
    tmpfs: tuple[str, ...] = ()
    health: HealthCheck | None = None
    """None: the image's own, if any."""
    after: tuple[tuple[str, Condition], ...] = ()
    """(service, what is waited for before this one is started)."""
    restart: bool = False
    memory_mb: int | None = None
    """Bounded by `ServiceBounds.memory_mb`, which holds without it too."""
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceBounds:
    """Limits on the services of one sandbox."""

    memory_mb: int = 1024
    """For each."""
    cpus: float = 1.0
    """For each."""
    pids: int = 256
    """For each."""
    volume_mb: int = 256
    """For each volume and tmpfs. They are in memory, because the engine has no quota for volumes on disk."""
    start_s: float = 120.0
    """Until all run and are healthy."""
    networks: IPv4Network = NETWORKS
    """The networks of services are parts of this range. The host has no address in them, so no host is hidden by it."""
