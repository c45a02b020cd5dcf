"""Starts programs without copying the server's memory.

uvloop forks in the loop's thread. Copying the page tables of 200 MB takes 7 ms of CPU, and those of a server under load
50 ms, while all sessions wait. `subprocess.Popen` uses vfork, which copies nothing and takes 0.3 ms.
"""

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any


class Spawned:
    """A child process, which is reaped at its end even if nobody waits for it."""

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        """Start it; `options` are those of `subprocess.Popen`, without any that rule out vfork (`preexec_fn`, `user`).

        Raises:
            OSError: there is no such program.

        """
        self._process: subprocess.Popen[bytes] = subprocess.Popen(words, **options)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        threading.Thread(target=self._reap, name=f"reaps {words[0]}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def stdout(self) -> IO[bytes] | None:
        """The pipe that was asked for; see `reading`."""
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes] | None:
        """As `stdout`."""
        return self._process.stderr

    def kill(self) -> None:
        """Send SIGKILL; does nothing if it has ended."""
        self._process.kill()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._ended.wait()

    def _reap(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ended.set)


@asynccontextmanager
async def reading(pipe: IO[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """A reader of `pipe` on the event loop; the pipe is closed at the end of the context."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        yield reader
    finally:
        transport.close()
