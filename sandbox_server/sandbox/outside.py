"""A container as its engine sees it: nothing that runs in it, or that it replaced, has a part in these answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sandbox_server.sandbox.base import ContainerSpec, Sandbox

FILES = "/sandbox-files"
"""Where `Outside.beside` shows the other container's root."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A container that is there, running or not."""

    image: str
    """The id of the image that it was made of, whatever that image's names mean by now."""
    created_at: str
    """As `find -newerct` takes it."""
    running: bool
    """Frozen ones are."""
    oom_killed: bool
    """The kernel killed one of its processes for the container's memory limit."""
    exit_code: int
    """Of its first process; 0 while that lives."""


class Outside(Protocol):
    """Looks at containers by the engine's means alone, which may be on another host."""

    @property
    def sees_files(self) -> bool:
        """False: the runtime keeps what a container writes to itself; its files are seen from inside only."""
        ...

    async def see(self, container_id: str) -> Seen:
        """How it stands. Raises SandboxLost: the engine has no such container. EngineUnavailable."""
        ...

    async def still(self, container_id: str) -> Seen:
        """Have nothing run in it any more, frozen or killed; its files are kept. Raises as `see`."""
        ...

    async def hit_its_memory(self, container_id: str) -> bool:
        """Whether a process of it was killed at its memory limit; False also where the engine does not say.

        Raises as `see`.
        """
        ...

    def kills_on_host(self) -> int | None:
        """Processes that the kernel killed for want of memory since its start, anywhere; None: on another host."""
        ...

    async def kills_in(self, container_id: str) -> int | None:
        """Processes of it that the kernel killed for want of memory, its own or the host's; None: nobody can tell here.

        Raises as `see`.
        """
        ...

    async def kills_at_limits(self, *, since: float) -> int:
        """How often a container of the engine had a process killed at its own limit since then (Unix seconds).

        Only among what the engine still knows; it may count some kills of one container in one. Raises
        EngineUnavailable.
        """
        ...

    async def beside(self, container_id: str, spec: ContainerSpec, *, folder: str) -> Sandbox:
        """A fresh container by `spec`, with the files of the other, at rest, below FILES.

        Where they cannot be mounted, `folder` of them is copied, at most as many bytes as a session may write; links in
        its path are the container's own. The caller removes it, before the other.

        Raises:
            As `Runtime.create`. Unseen: the folder cannot be had, though the engine works.

        """
        ...


class Unseen(Exception):
    """What was to be looked at is not there, or not to be read; `why` in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
