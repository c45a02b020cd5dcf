"""Channels for file operations: bashes with the functions of filesystem.bash, each running one operation at a time.

A streaming operation holds its channel until its data has ended, so there are several. Opening the first channel costs
as much as starting a process in a container; channels are kept and reused.
"""

import asyncio
import secrets
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib import resources
from typing import NoReturn

from sandbox_server.errors import CommandBroken, SandboxExhausted, SandboxLost
from sandbox_server.sandbox.bash import frames
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.engine import Container, ExecStream

_CHANNELS = 8  # of one container at a time; further operations wait
_TURN_S = 60.0  # to wait for a channel
_SCRIPT = resources.files(__package__).joinpath("filesystem.bash").read_bytes()


class ChannelEnded(Exception):
    """The channel's bash ended: the policy killed it, or the container was restarted or removed."""


class Exchange:
    """One operation on a channel: a function call, its data, and the word at the end of the answer."""

    def __init__(self, exec_stream: ExecStream) -> None:
        self._exec_stream = exec_stream
        self._nonce = secrets.token_hex(8)
        self._mark = f"\n{self._nonce} ".encode()
        self._rest = bytearray()

    async def tell(self, function: str, *words: str, data: bytes = b"") -> None:
        """Call a function of filesystem.bash, with `data` as its input."""
        line = shlex.join((function, self._nonce, *words)) + "\n"
        await self._exec_stream.write(line.encode("utf-8", "surrogateescape") + data)

    async def send(self, data: bytes) -> None:
        """Write more input for the function that runs."""
        await self._exec_stream.write(data)

    async def data(self) -> AsyncGenerator[bytes, None]:
        """Yield the function's output as it arrives; `word` is set at its end.

        Raises:
            ChannelEnded. CommandBroken.

        """
        while (frame := await self._exec_stream.receive()) is not None:
            stream, piece = frame
            if stream != 1:
                continue
            self._rest += piece
            at = self._rest.find(self._mark)
            if at < 0:
                # hold back what may be the beginning of the mark
                sure = len(self._rest) - len(self._mark)
                if sure > 0:
                    yield bytes(self._rest[:sure])
                    del self._rest[:sure]
                continue
            if at:
                yield bytes(self._rest[:at])
                del self._rest[:at]
            behind = len(self._mark)
            try:
                word = frames.line_of(self._rest[behind : behind + frames.LONGEST_WORD], frames.LONGEST_WORD)
            except frames.BadFrame:
                raise CommandBroken("The end of an answer about files") from None
            if word is not None:
                self.word = word.decode("ascii", "replace")
                del self._rest[: behind + len(word) + 1]
                return
        raise ChannelEnded

    async def answer(self, most: int) -> bytes:
        """Return all of the function's output.

        Raises:
            OverflowError: it is longer than `most` bytes. ChannelEnded.

        """
        kept = bytearray()
        async with aclosing(self.data()) as data:
            async for piece in data:
                kept += piece
                if len(kept) > most:
                    raise OverflowError(f"more than {most >> 20} MiB in the answer; ask for less")
        return bytes(kept)

    word = ""
    """The word at the end of the last answer."""


class FileSystemChannels:
    """The file operation channels of one container."""

    def __init__(self, container: Container, clock: SandboxClock, *, user: str = "0") -> None:
        self._container = container
        self._user = user
        self._clock = clock
        self._idle: list[ExecStream] = []
        self._turns = asyncio.Semaphore(_CHANNELS)

    @asynccontextmanager
    async def exchange(self, *, fresh: bool = False) -> AsyncIterator[Exchange]:
        """Get a channel for one operation; `fresh`: a new one, because the idle ones may be dead.

        The channel is kept for later operations, or closed if the body raises.

        Raises:
            SandboxLost: the container is not running. BlockingIOError: it can take no further process.
            SandboxPaused. TimeoutError: no channel became free.

        """
        self._clock.check()
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise TimeoutError(f"{_CHANNELS} file operations have been running for {_TURN_S:g} s; try again") from None
        try:
            if fresh:
                self.close()
            exec_stream = self._idle.pop() if self._idle else await self._open()
            try:
                yield Exchange(exec_stream)
            except BaseException:
                exec_stream.close()
                raise
            self._idle.append(exec_stream)
        finally:
            self._turns.release()

    async def _open(self) -> ExecStream:
        argv = ["bash", "--noprofile", "--norc", "-p", "-s"]
        try:
            exec_stream = await self._container.exec(argv, user=self._user)
        except SandboxExhausted as e:
            raise BlockingIOError(11, "Resource temporarily unavailable") from e
        await exec_stream.write(_SCRIPT)
        return exec_stream

    async def refused(self) -> NoReturn:
        """Raise the reason why two channels in a row ended at once.

        Raises:
            SandboxLost, BlockingIOError.

        """
        if not (await self._container.state()).running:
            raise SandboxLost(f"the container {self._container.id[:12]} is not running")
        # at its process or memory limit the engine can start no process in it: the policy's doing
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def close(self) -> None:
        """Close the idle channels; their bashes end."""
        for exec_stream in self._idle:
            exec_stream.close()
        self._idle.clear()
