"""A container's specification at creation, and what the engine lists of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sandbox_server.sandbox.egress import Egress
from sandbox_server.sandbox.services import Condition, HealthCheck, ServiceSpec

DEFAULT_ACTIVATION = "[[ -f /opt/miniconda3/bin/activate ]] && . /opt/miniconda3/bin/activate testbed 2> /dev/null"
"""Used if `activate` is empty: the conda environment `testbed`, if the image has it."""


class Role(StrEnum):
    """Why a container exists; label `sandbox.role`."""

    SESSION = "session"
    GRADE = "grade"
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one container."""

    memory_mb: int = 4096
    cpus: float = 2.0
    pids: int = 512
    open_files: int = 4096
    disk_mb: int = 10240
    """Limit on the size of one file and of the writable layer."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container's specification at creation."""

    image: str
    role: Role
    sid: str
    """The session it belongs to, also for grade and prepare containers; "" for none."""
    deadline: datetime
    """The reaper removes it after this time even if nothing else is known of it; label `sandbox.deadline`."""
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """Name or number of the user of the persistent shell; "": root."""
    activate: str = ""
    """Shell text that the persistent shell runs once when it starts, for example conda activation."""
    network: str = "none"
    egress: Egress | None = None
    """Its network rules; for a session, in addition to the server's rules for all sessions."""
    restricted: bool = False
    """The server's network rules for sessions hold for this container too."""
    limits: Limits = field(default_factory=Limits)
    with_shell: bool = True
    """False: no persistent shell; the container only waits for `exec`."""
    cpu_shares: int = 0
    """CPU weight among containers that compete for the CPU; 0: the engine's default, 1024."""
    setuid: bool = False
    """Programs with the set-user-ID bit (sudo, su) get their owner's rights, at most those of the container's root.
    False: executing a program never adds rights."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folder on the engine's host -> path in the container; only folders that the engine itself has named."""
    services: tuple[ServiceSpec, ...] = ()
    """Containers beside it, in the order of their starts; they exist as long as it does."""
    awaits: tuple[tuple[str, Condition], ...] = ()
    """(service, condition that must hold before this container starts). In any case all services run by then, and are
    healthy if they have a health check, except those that have completed."""
    health: HealthCheck | None = None
    """Run in this container, by root in `workdir`, before anybody gets it."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """What a session's container had used of the CPU just before its removal."""

    container_id: str
    sid: str
    """The session that the container was made for, or assigned to. For a container that was still parked, no session
    with this id exists."""
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One of our containers as the engine lists it."""

    container_id: str
    role: Role
    sid: str
    node: str
    deadline: datetime
    running: bool
    image: str
    held: bool
    """This process is creating or using it, so it is not an orphan."""
    paused: bool = False
