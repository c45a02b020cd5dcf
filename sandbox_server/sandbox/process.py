"""What one running command in a sandbox is to the rest of the service, whoever runs it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Stream(IntEnum):
    """Where a piece of a process's output was written."""

    STDOUT = 1
    STDERR = 2
    PTY = 3
    """The terminal of a process that has one: both of its streams."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a terminal, in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process came to its end."""

    exit_code: int
    """-1: a signal ended it."""
    signal: int | None = None
    timed_out: bool = False
    """It was killed at its timeout, with all that began in it."""
    error: str = ""
    """Why it could not be run, one sentence; "" for all that ran."""


class Process(Protocol):
    """One running command apart from the shell.

    Its output is to be read, or thrown away by `detach`: a process whose output nobody takes blocks in its next
    write once the pipes are full. Of `output` there is one reader.
    """

    @property
    def pid(self) -> int:
        """In the container, and unique there while it runs."""
        ...

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it writes, byte for byte, in pieces of at most 32 KiB; nothing is read ahead of the caller.

        Ends when the command's own process has ended, whoever else still holds its pipes.

        Raises:
            SandboxLost: the container ended. EngineUnavailable: the daemon did.

        """
        ...

    async def wait(self) -> ProcessEnd:
        """Its end. What of its output nobody has read by then, and nobody is reading, is thrown away.

        Raises:
            SandboxLost, EngineUnavailable: as of `output`.

        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin (started with `stdin=True` or on a terminal); what has closed it ignores the rest."""
        ...

    async def close_stdin(self) -> None:
        """End its stdin; of one on a terminal: type the terminal's end of file."""
        ...

    async def signal(self, number: int) -> bool:
        """Send it a signal; False: it has ended."""
        ...

    async def resize(self, size: Size) -> None:
        """Of one on a terminal: its new size; nothing for others, and for one that has ended."""
        ...

    async def kill_tree(self) -> None:
        """Kill it and all that began in it: children, and those that left by setsid, a double fork or `env -i`.

        Also when its own process has ended already. Nothing of it is left on return.
        """
        ...

    def detach(self) -> None:
        """Stop reading; it lives on, what it writes is thrown away, its timeout still holds. `wait` goes on."""
        ...
