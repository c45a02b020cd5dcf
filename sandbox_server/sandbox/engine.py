"""The interface between `sandbox.bash` and a container backend: what an engine does for one container.

The shell, commands and file operations of `sandbox.bash` use only these two protocols, so a backend implements them
and `sandbox.base.Runtime`. docs/architecture.md lists the requirements; tests/conformance/sandbox tests them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container's state as its engine reports it."""

    running: bool
    """Its first process lives; true also while it is frozen."""
    oom_killed: bool
    """The kernel killed one of its processes at its memory limit, in the current run or, once ended, the last one."""
    frozen: bool
    """None of its processes runs until it is resumed."""


class ExecStream(Protocol):
    """A process that the engine started in the container beside the first one, with its streams."""

    async def write(self, data: bytes) -> None:
        """Write to the process's stdin; return when little of it is still waiting to be sent.

        Data written after the process has ended or closed its stdin is lost without an error.
        """
        ...

    def end_input(self) -> None:
        """Close the process's stdin."""
        ...

    async def receive(self) -> tuple[int, bytes] | None:
        """Return the next bytes of output and their stream: 1 stdout, 2 stderr, 3 a terminal; at most 32 KiB.

        None: the process and all others that hold its output have ended, or `close` was called. A cancelled call loses
        no data. At most 128 KiB are read ahead, so a slow reader holds the process back.
        """
        ...

    async def exit_code(self) -> int | None:
        """The process's exit status, 128 + N after signal N; None while it runs."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the process's terminal."""
        ...

    def close(self) -> None:
        """Drop the stream at once; the process goes on. A waiting `receive` returns None."""
        ...


class Container(Protocol):
    """One container, running or not.

    All methods raise EngineUnavailable if the engine does not answer, and SandboxLost if the container is gone.
    """

    @property
    def id(self) -> str:
        """The engine's full id."""
        ...

    async def attach(self, terminal: asyncio.Protocol) -> None:
        """Connect `terminal` to the first process's terminal, from now until the container ends.

        Attaching before the start is possible; then no output is missed.
        """
        ...

    async def start(self) -> None:
        """Start it; its network restrictions are in place before it can reach anything.

        Raises:
            EgressUnavailable: the restrictions could not be applied; the container does not run.

        """
        ...

    async def exec(self, argv: Sequence[str], *, user: str, tty: bool = False) -> ExecStream:
        """Start `argv` in `/` with the container's environment; `user` is a name or number, `name[:group]`.

        `tty`: on a terminal of its own.

        Raises:
            SandboxLost: the container does not run. SandboxPaused: it is frozen.
            SandboxExhausted: it can take no further process. An engine may also report this, or a missing program
            or user, by a stream that ends at once with status 126 or 127.

        """
        ...

    async def signal(self, name: str) -> None:
        """Send a signal (`USR1`) to the first process. Raises SandboxLost: it does not run."""
        ...

    async def kill(self) -> None:
        """Kill all of its processes; wait at most 30 s until the engine has noted its end."""
        ...

    async def state(self) -> ContainerState:
        """Its current state."""
        ...

    async def workdir(self) -> str:
        """Its absolute working directory, as given at its creation."""
        ...
