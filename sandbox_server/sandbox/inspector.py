"""Facts about a container taken from its engine alone, so that no process in the container can influence them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sandbox_server.sandbox.base import ContainerSpec, Limits, Sandbox
    from sandbox_server.sandbox.tree import Tree

FILES = "/sandbox-files"
"""Path at which `ContainerInspector.create_reader` mounts the other container's root."""


_SAME = 0.999
"""Share of a limit that counts as the whole: engines and kernels round."""


@dataclass(frozen=True, slots=True)
class CurrentLimits:
    """A container's present limits, which users of its host can change at any time; 0: no limit."""

    memory_mb: float
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class ContainerDetails:
    """An existing container, running or not."""

    image: str
    """The id of the image that it was created from, even if that image's names have moved."""
    created_at: str
    """Creation time in the form that `find -newerct` reads."""
    running: bool
    """True also while frozen."""
    oom_killed: bool
    """The kernel killed one of its processes at the container's memory limit."""
    exit_code: int
    """Exit code of its first process; 0 while that runs."""
    limits: CurrentLimits | None = None
    """None: the engine does not say."""

    def lowered_limits(self, given: Limits) -> str:
        """Which limits are lower than the container was `given`, in one sentence; "" for none."""
        if self.limits is None:
            return ""
        now = {name: (getattr(self.limits, name), getattr(given, name)) for name in ("memory_mb", "cpus", "pids")}
        told = [f"{name} {has:g} in place of {had:g}" for name, (has, had) in now.items() if 0 < has < had * _SAME]
        return f"somebody has lowered the limits of the container on its host: {', '.join(told)}" if told else ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a container has used and uses, as its kernel counts it."""

    cpu_s: float
    """CPU seconds of all its processes since its start."""
    memory_bytes: int
    """Without files that were read and can be dropped at once."""
    cache_bytes: int
    """Memory that holds parts of files."""


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """Absolute paths in a container."""

    folders: Sequence[bytes]
    """Folders that were made, or in which something was made, changed or removed."""
    others: Sequence[bytes]
    """Everything else that was made or changed."""


class ContainerInspector(Protocol):
    """Inspects containers through the engine only; the engine may be on another host."""

    @property
    def sees_files(self) -> bool:
        """False if the OCI runtime keeps a container's writes to itself; they are then visible only from inside."""
        ...

    async def inspect(self, container_id: str) -> ContainerDetails:
        """Return its state. Raises SandboxLost if the engine has no such container; EngineUnavailable."""
        ...

    async def freeze_or_kill(self, container_id: str) -> ContainerDetails:
        """Stop everything in it, by freezing or killing; its files are kept. Raises as `inspect`."""
        ...

    async def usage(self, container_id: str) -> Usage:
        """CPU and memory of a running or frozen container. Raises as `inspect`; SandboxLost also if it has ended."""
        ...

    async def hit_memory_limit(self, container_id: str) -> bool:
        """Whether a process of it was killed at its memory limit; False if the engine does not report it.

        Raises as `inspect`.
        """
        ...

    def kills_on_host(self) -> int | None:
        """Processes on the host that the kernel killed for lack of memory since boot; None for a remote engine."""
        ...

    async def kills_in(self, container_id: str) -> int | None:
        """Processes of it killed for lack of memory, the container's or the host's; None if that is not known here.

        Raises as `inspect`.
        """
        ...

    async def kills_at_limits(self, *, since: float) -> int:
        """Number of times that a container lost a process at its own memory limit since `since` (Unix seconds).

        Counts only what the engine still knows, and several kills in one container possibly as one. Raises
        EngineUnavailable.
        """
        ...

    async def changed_paths(self, container_id: str) -> ChangedPaths | None:
        """Paths that differ from the image; None if this cannot be found out cheaply from here. Raises as `inspect`.

        Unchanged paths may be among them, and paths that the engine itself mounts or writes. The container may run.
        """
        ...

    async def tree(self, container_id: str) -> Tree:
        """The files of a running container, for use on a thread; the caller closes it.

        Raises:
            HostAccessFailed: this server cannot reach them. As `inspect`.
        """
        ...

    async def create_reader(self, container_id: str, spec: ContainerSpec, *, folder: str) -> Sandbox:
        """Create a container by `spec` that has the other container's files, at rest, below FILES.

        If they cannot be mounted, `folder` is copied instead, up to the number of bytes that a session may write. Links
        in the path of `folder` are resolved in the other container. The caller removes the new container before the
        other.

        Raises:
            As `Runtime.create`. FolderUnreadable: the folder cannot be read, although the engine works.

        """
        ...


class FolderUnreadable(Exception):
    """The requested folder does not exist or cannot be read; `why` says it in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
