"""A stream to a process that runs beside the shell, without a terminal: stdin in, stdout and stderr apart."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from sandbox_server.sandbox.docker.engine import Engine

T = TypeVar("T")

_HEADER = struct.Struct(">BxxxL")  # stream (1 stdout, 2 stderr), three zero bytes, length
_READ = 1 << 16
_PIECE = 1 << 15
_TERMINAL = 3


class Lane:
    """One `docker exec` with its stream held open. Source: Engine API, "Attach to a container", stream format."""

    def __init__(self, engine: Engine, exec_id: str, sock: socket.socket, first: bytes, *, tty: bool = False) -> None:
        self._engine = engine
        self._id = exec_id
        self._sock = sock
        self._buffer = bytearray(first)
        self._tty = tty
        self._stream = _TERMINAL if tty else 0
        self._left = 0  # of the frame that is being read
        self._busy = 0  # reads and writes that wait
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls,
        engine: Engine,
        container_id: str,
        argv: list[str],
        *,
        env: dict[str, str],
        cwd: str | None,
        user: str,
        tty: bool = False,
    ) -> "Lane":
        """Start `argv` in the container, with `tty` on a terminal of its own: its output comes as one stream then.

        Raises:
            SandboxLost: the container is not running. SandboxExhausted: it can take no further process.
        """
        created: dict[str, Any] = await engine.call(
            lambda api: api.exec_create(
                container_id,
                argv,
                stdin=True,
                environment=env,
                workdir=cwd,
                user=user,
                stdout=True,
                stderr=True,
                tty=tty,
            )
        )
        sock, first = await engine.hijack(f"/exec/{created['Id']}/start", {"Detach": False, "Tty": tty})
        return cls(engine, created["Id"], sock, first, tty=tty)

    async def write(self, data: bytes) -> None:
        """Write to the process's stdin; a process that has closed it ignores the rest."""
        with suppress(OSError):
            await self._use(lambda: self._loop.sock_sendall(self._sock, data))

    def end_input(self) -> None:
        """Close the process's stdin."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has closed already

    async def frames(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """What `receive` gives, until its end."""
        while (frame := await self.receive()) is not None:
            yield frame

    async def receive(self) -> tuple[int, bytes] | None:
        """(1 for stdout, 2 for stderr, 3 for a terminal; up to 32 KiB), read only now.

        None: the process and all who hold its output have ended. A caller that is cancelled loses nothing.
        """
        while not self._tty and not self._left:
            while len(self._buffer) < _HEADER.size:
                if not await self._fill():
                    return None
            self._stream, self._left = _HEADER.unpack_from(self._buffer)
            del self._buffer[: _HEADER.size]
        if not self._buffer and not await self._fill():
            return None
        piece = bytes(self._buffer[: _PIECE if self._tty else min(self._left, _PIECE)])
        del self._buffer[: len(piece)]
        if not self._tty:
            self._left -= len(piece)
        return self._stream, piece

    async def _fill(self) -> bool:
        try:
            data = await self._use(lambda: self._loop.sock_recv(self._sock, _READ))
        except OSError:
            return False  # reset, or closed here
        self._buffer += data
        return bool(data)

    async def _use(self, waiting: Callable[[], Awaitable[T]]) -> T:
        if self._closed:
            raise OSError
        self._busy += 1
        try:
            return await waiting()
        finally:
            self._busy -= 1
            self._give_up()

    async def exit_code(self) -> int | None:
        """The process's exit status; None while it runs."""
        state: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(self._id))
        code: int | None = None if state["Running"] else state["ExitCode"]
        return code

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the terminal, while the process runs."""
        await self._engine.call(lambda api: api.exec_resize(self._id, height=rows, width=cols))

    def close(self) -> None:
        """Drop the stream; the process is not killed by that. Whoever waits in `receive` is given its end."""
        self._closed = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._give_up()

    def _give_up(self) -> None:
        # the loop would not wake who waits for a socket that is gone
        if self._closed and not self._busy:
            self._sock.close()
