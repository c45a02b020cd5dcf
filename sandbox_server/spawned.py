"""Starts programs without copying the server's memory.

uvloop forks in the loop's thread. Copying the page tables of 200 MB takes 7 ms of CPU, and those of a server under load
50 ms, while all sessions wait. `subprocess.Popen` uses vfork, which copies nothing and takes 0.3 ms.
"""

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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


class Pipe:
    """Reads a pipe on the event loop, which does not own its descriptor.

    uvloop's `connect_read_pipe` closes the descriptor twice: once itself, and once by the file object. In between, a
    thread may open a file that gets the same number. The second close takes it away from the thread, whose own
    close takes it away from whatever has the number by then, such as a connection, which hangs.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)

    async def read(self, most: int) -> bytes:
        """Up to `most` bytes as soon as there are some; b"" at the end."""
        while True:
            await asyncio.sleep(0)  # the writer may be as fast as we are
            try:
                return os.read(self._pipe.fileno(), most)
            except BlockingIOError:
                await self._readable()

    async def _readable(self) -> None:
        fd, news = self._pipe.fileno(), asyncio.Event()
        self._loop.add_reader(fd, news.set)
        try:
            await news.wait()
        finally:
            self._loop.remove_reader(fd)


@contextmanager
def reading(pipe: IO[bytes]) -> Iterator[Pipe]:
    """A reader of `pipe` on the event loop, for one task; the pipe is closed at the end of the context."""
    with pipe:
        yield Pipe(pipe)
