"""The configuration of a runtime, and what it reports of its engine."""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sandbox_server.sandbox.egress import Egress, NameServer
from sandbox_server.sandbox.services import ServiceBounds

OWN_SECCOMP = Path(__file__).with_name("seccomp.json")
"""The system calls that this project's containers may make, in the format of Docker's own profile."""


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Settings shared by all containers of this server."""

    node: str
    oci_runtime: str | None = None
    seccomp: Path | None = OWN_SECCOMP
    """Seccomp profile of the containers; None: the engine's default."""
    fifos: Path | None = None
    """Folder for the FIFOs of shells, with the same path for the engine; None: the engine carries the bytes."""
    boot_concurrency: int = 4
    pull: bool = True
    pull_timeout_s: float = 540.0
    hostname: str = "openhands-workspace"
    """The host name in the prompt that policies were trained with."""
    egress: Egress | None = None
    """Network rules for all sessions and boxes that have a network; None: no restriction."""
    egress_image: str = "sandbox-egress"
    """Image with nft, which applies the network rules, and dnsmasq."""
    egress_dns: NameServer | None = None
    """Name server for the names below domains that rules allow; None: rules must not have domains."""
    login_cache: bool = True
    """Skip a login shell's profile when its effect is known from earlier identical logins."""
    meter_cpu: bool = False
    """Read sessions' containers once more before they are removed (`Runtime.take_last_cpu_times`)."""
    busy_cpu_shares: int = 1024
    """CPU weight of sandboxes that compute without a pause on a busy host (`Runtime.weigh`); 1024: that of others."""
    services: ServiceBounds = field(default_factory=ServiceBounds)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The daemon's description of itself and its host."""

    product: str
    """`Docker` or `Podman`."""
    version: str
    url: str
    """Where it listens."""
    storage_driver: str
    root_dir: str
    cpus: int
    memory_mb: int
    time: datetime
    """Its host's clock."""
    seccomp: bool
    """The engine can apply seccomp profiles."""
    without_fifos: str
    """Why the engine carries the bytes of all shells; "" if FIFOs do where the image has `script`."""
    runtimes: frozenset[str]
    """Names of the OCI runtimes that it is configured with; empty: it does not say."""
