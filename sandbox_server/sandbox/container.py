"""What fixes a container when it is created, and what the engine lists of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sandbox_server.sandbox.egress import Egress

DEFAULT_ACTIVATION = "[[ -f /opt/miniconda3/bin/activate ]] && . /opt/miniconda3/bin/activate testbed 2> /dev/null"
"""What an empty `activate` stands for: the conda env `testbed`, where the image has it."""


class Role(StrEnum):
    """Why a container exists; label `sandbox.role`."""

    SESSION = "session"
    GRADE = "grade"
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one container may use."""

    memory_mb: int = 4096
    cpus: float = 2.0
    pids: int = 512
    open_files: int = 4096
    disk_mb: int = 10240
    """Bound on one file and on the writable layer."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """All that fixes a container at its creation."""

    image: str
    role: Role
    sid: str
    """The session it is for (also for grade and prepare containers: whose it is, or "" for none)."""
    deadline: datetime
    """The moment by which it goes even if nothing else is known of it; label `sandbox.deadline`."""
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    activate: str = ""
    """Shell text that the persistent shell runs once at its start (conda activation and the like)."""
    network: str = "none"
    egress: Egress | None = None
    """What of the network it may reach; a session, at most what the server's sessions may."""
    limits: Limits = field(default_factory=Limits)
    with_shell: bool = True
    """False: no persistent shell; the container only waits for `exec`."""
    cpu_shares: int = 0
    """Weight among containers that want the CPU at the same time; 0: the engine's default, 1024."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folder of the engine's host -> where it is in the container; only what the engine itself has named."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container of ours as the engine lists it."""

    container_id: str
    role: Role
    sid: str
    node: str
    deadline: datetime
    running: bool
    image: str
    held: bool
    """This process makes or uses it: it is not an orphan."""
    paused: bool = False
