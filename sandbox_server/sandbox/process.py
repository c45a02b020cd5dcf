"""The interface of one running command in a sandbox, independent of the backend."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Stream(IntEnum):
    """The stream that a piece of a process's output was written to."""

    STDOUT = 1
    STDERR = 2
    PTY = 3
    """The terminal of a process that has one; carries stdout and stderr."""


@dataclass(frozen=True, slots=True)
class Size:
    """Terminal size in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended."""

    exit_code: int
    """-1 if a signal ended it."""
    signal: int | None = None
    timed_out: bool = False
    """It and all its descendants were killed at its timeout."""
    error: str = ""
    """Why it could not be run, one sentence; "" if it ran."""


class Process(Protocol):
    """One running command outside the shell.

    Read its output, or discard it with `detach`: a process whose output nobody reads blocks in a write once the pipes
    are full. `output` has one reader.
    """

    @property
    def pid(self) -> int:
        """Process id in the container; unique there while it runs."""
        ...

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Yield its output, byte for byte, in pieces of at most 32 KiB; nothing is read ahead of the caller.

        Ends with the command's own process, even if other processes still hold its pipes.

        Raises:
            SandboxLost: the container ended. EngineUnavailable: the daemon ended.

        """
        ...

    async def wait(self) -> ProcessEnd:
        """Wait for its end. Output that nobody has read by then or is reading is discarded.

        Raises:
            SandboxLost, EngineUnavailable: see `output`.

        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin (requires `stdin=True` or a terminal); ignored once the process has closed it."""
        ...

    async def close_stdin(self) -> None:
        """Close its stdin; on a terminal, send the end-of-file character."""
        ...

    async def signal(self, number: int) -> bool:
        """Send it a signal; False if it has ended."""
        ...

    async def resize(self, size: Size) -> None:
        """Set the size of its terminal; no effect without a terminal or after its end."""
        ...

    async def kill_tree(self) -> None:
        """Kill it and all its descendants, including those that left by setsid, a double fork or `env -i`.

        Works also if its own process has already ended. No descendant is left on return.
        """
        ...

    def detach(self) -> None:
        """Stop reading: it lives on, its output is discarded, its timeout still holds. `wait` still works."""
        ...
