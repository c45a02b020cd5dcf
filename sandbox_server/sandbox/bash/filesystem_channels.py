"""Lanes for file operations: a few bashes with the functions of filesystem.bash, each for one operation at a time.

An operation that streams holds its lane as long as its data lasts, so there are several; the first costs what starting
a process in a container costs, and is used again.
"""

import asyncio
import secrets
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from importlib import resources

from sandbox_server.errors import CommandBroken, SandboxExhausted, SandboxLost
from sandbox_server.sandbox.bash import frames
from sandbox_server.sandbox.bash.freezing import Thawed
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.exec_stream import Lane

_LANES = 8  # of one container at the same time; more operations wait their turn
_TURN_S = 60.0  # to wait for a lane
_SCRIPT = resources.files(__package__).joinpath("filesystem.bash").read_bytes()


class LaneEnded(Exception):
    """The lane's bash is gone: the policy killed it, or the container was started again, or is gone."""


class Exchange:
    """One operation on a lane: a command, its data, the word at its end."""

    def __init__(self, lane: Lane, frames: AsyncGenerator[tuple[int, bytes], None]) -> None:
        self._lane = lane
        self._frames = frames
        self._nonce = secrets.token_hex(8)
        self._mark = f"\n{self._nonce} ".encode()
        self._rest = bytearray()

    async def tell(self, function: str, *words: str) -> None:
        """Have a function of filesystem.bash run."""
        line = shlex.join((function, self._nonce, *words)) + "\n"
        await self._lane.write(line.encode("utf-8", "surrogateescape"))

    async def send(self, data: bytes) -> None:
        """Input for the function that runs."""
        await self._lane.write(data)

    async def data(self) -> AsyncGenerator[bytes, None]:
        """What the function writes, as it comes; `word` stands once this has ended.

        Raises:
            LaneEnded. CommandBroken.

        """
        async for stream, piece in self._frames:
            if stream != 1:
                continue
            self._rest += piece
            at = self._rest.find(self._mark)
            if at < 0:
                # what may be the beginning of the mark waits for the rest of it
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
        raise LaneEnded

    async def answer(self, most: int) -> bytes:
        """All that the function writes.

        Raises:
            OverflowError: that is more than `most` bytes. LaneEnded.

        """
        kept = bytearray()
        async with aclosing(self.data()) as data:
            async for piece in data:
                kept += piece
                if len(kept) > most:
                    raise OverflowError(f"more than {most >> 20} MiB to tell; ask for less of it")
        return bytes(kept)

    word = ""
    """How the last answer ended."""


class TreeLanes:
    """The lanes of one container."""

    def __init__(self, engine: Engine, container_id: str, clock: Thawed) -> None:
        self._engine = engine
        self._clock = clock
        self._container_id = container_id
        self._idle: list[tuple[Lane, AsyncGenerator[tuple[int, bytes], None]]] = []
        self._turns = asyncio.Semaphore(_LANES)

    @asynccontextmanager
    async def exchange(self, *, fresh: bool = False) -> AsyncIterator[Exchange]:
        """A lane for one operation; `fresh`: not one that may have died meanwhile.

        It is used again if the operation comes to its end, and dropped if anything is raised.

        Raises:
            SandboxLost: the container is not running. BlockingIOError: it can take no further process.
            SandboxPaused. TimeoutError: no lane has become free.

        """
        self._clock.check()
        try:
            async with asyncio.timeout(_TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise TimeoutError(f"{_LANES} file operations have been under way for {_TURN_S:g} s; try again") from None
        try:
            if fresh:
                self.close()
            lane, frames = self._idle.pop() if self._idle else await self._open()
            try:
                yield Exchange(lane, frames)
            except BaseException:
                with suppress(RuntimeError):  # it is being read by a task that is cancelled
                    await frames.aclose()
                lane.close()
                raise
            self._idle.append((lane, frames))
        finally:
            self._turns.release()

    async def _open(self) -> tuple[Lane, AsyncGenerator[tuple[int, bytes], None]]:
        argv = ["bash", "--noprofile", "--norc", "-p", "-s"]
        try:
            lane = await Lane.open(self._engine, self._container_id, argv, env={}, cwd="/", user="0")
        except SandboxExhausted as e:
            raise BlockingIOError(11, "Resource temporarily unavailable") from e
        await lane.write(_SCRIPT)
        return lane, lane.frames()

    async def refused(self) -> None:
        """After two lanes that ended at once: say why.

        Raises:
            SandboxLost, BlockingIOError.

        """
        found = await self._engine.call(lambda api: api.inspect_container(self._container_id))
        if not found["State"]["Running"]:
            raise SandboxLost(f"the container {self._container_id[:12]} is not running")
        # at its PID or memory limit the engine can start no process in it: the policy's doing
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def close(self) -> None:
        """Drop the idle lanes; their bashes end with their input."""
        for lane, _ in self._idle:
            lane.close()
        self._idle.clear()
