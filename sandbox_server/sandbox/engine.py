"""The seam where a container backend begins: what an engine does for one container.

`sandbox.bash` builds the shell, commands and file operations on these two protocols alone, so a backend implements
them and `sandbox.base.Runtime`, and nothing else. docs/architecture.md lists what it must do;
tests/conformance/sandbox shows whether it does.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as its engine sees it."""

    running: bool
    """Its first process lives, frozen or not."""
    oom_killed: bool
    """The kernel killed one of its processes at its memory limit, in this run or, if it has ended, in the last one."""


class ExecStream(Protocol):
    """A process that the engine started beside the container's first one, with its streams held open."""

    async def write(self, data: bytes) -> None:
        """Write to the process's stdin; returns when little of it waits to be sent.

        What is written after the process has ended or has closed its stdin is lost without an error.
        """
        ...

    def end_input(self) -> None:
        """Close the process's stdin."""
        ...

    async def receive(self) -> tuple[int, bytes] | None:
        """The next bytes of output and their stream: 1 stdout, 2 stderr, 3 a terminal; at most 32 KiB.

        None: the process and all others that hold its output have ended, or `close` was called. A cancelled caller
        loses nothing. At most 128 KiB are read ahead, so a reader that waits holds the process back.
        """
        ...

    async def exit_code(self) -> int | None:
        """The process's exit status, 128 + N after signal N; None while it runs."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the process's terminal."""
        ...

    def close(self) -> None:
        """Drop the stream at once; the process goes on. Whoever waits in `receive` gets None."""
        ...


class Container(Protocol):
    """One container that was created, running or not.

    All methods raise EngineUnavailable if the engine does not answer, and SandboxLost if the container is gone.
    """

    @property
    def id(self) -> str:
        """The engine's full id."""
        ...

    async def attach(self, terminal: asyncio.Protocol) -> None:
        """Have `terminal` read and write the terminal of the first process, from now until the container ends.

        A container that was created but not started can be attached to; then no output is missed.
        """
        ...

    async def start(self) -> None:
        """Start it; whatever restricts its network is in place before it can reach anything.

        Raises:
            EgressUnavailable: the restrictions could not be put in place; it does not run.

        """
        ...

    async def exec(self, argv: Sequence[str], *, user: str, tty: bool = False) -> ExecStream:
        """Start `argv` in `/` with the container's environment; `user` is a name or number, `name[:group]`.

        `tty`: on a terminal of its own.

        Raises:
            SandboxLost: the container does not run. SandboxPaused: it is frozen.
            SandboxExhausted: it can take no further process. An engine may also tell this, and a missing program or
            user, by a stream that ends at once with status 126 or 127.

        """
        ...

    async def signal(self, name: str) -> None:
        """Send a signal (`USR1`) to the first process. Raises SandboxLost: it does not run."""
        ...

    async def kill(self) -> None:
        """Kill all of its processes and wait, at most 30 s, until the engine has noted its end."""
        ...

    async def state(self) -> ContainerState:
        """How it is now."""
        ...

    async def workdir(self) -> str:
        """The absolute folder that it was created with."""
        ...
