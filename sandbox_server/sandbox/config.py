"""What a runtime is told of its containers, and what it tells of its engine."""

from dataclasses import dataclass
from datetime import datetime

from sandbox_server.sandbox.egress import Egress


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What is the same for every container of this server."""

    node: str
    oci_runtime: str | None = None
    boot_concurrency: int = 4
    pull: bool = True
    pull_timeout_s: float = 540.0
    hostname: str = "openhands-workspace"
    """As in the prompt that policies were trained with."""
    egress: Egress | None = None
    """What sessions and boxes that have a network may reach at most; None: all that it leads to."""
    egress_image: str = "sandbox-egress"
    """Has nft; it puts such rules in place."""
    login_cache: bool = True
    """Login shells that are begun alike again and again do without a profile whose effect is known."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the daemon says of itself and its host."""

    version: str
    storage_driver: str
    root_dir: str
    cpus: int
    memory_mb: int
    time: datetime
