"""A stream to a process that runs beside the shell, without a terminal: stdin in, stdout and stderr apart."""

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from typing import Any

from sandbox_server.sandbox.docker.engine import Engine

_HEADER = struct.Struct(">BxxxL")  # stream (1 stdout, 2 stderr), three zero bytes, length
_READ = 1 << 16


class Lane:
    """One `docker exec` with its stream held open. Source: Engine API, "Attach to a container", stream format."""

    def __init__(self, engine: Engine, exec_id: str, sock: socket.socket, first: bytes) -> None:
        self._engine = engine
        self._id = exec_id
        self._sock = sock
        self._buffer = bytearray(first)
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(
        cls, engine: Engine, container_id: str, argv: list[str], *, env: dict[str, str], cwd: str | None, user: str
    ) -> "Lane":
        """Start `argv` in the container.

        Raises:
            SandboxLost: the container is not running. ExecRefused: it can take no further process.
        """
        created: dict[str, Any] = await engine.call(
            lambda api: api.exec_create(
                container_id, argv, stdin=True, environment=env, workdir=cwd, user=user, stdout=True, stderr=True
            )
        )
        sock, first = await engine.hijack(f"/exec/{created['Id']}/start", {"Detach": False, "Tty": False})
        return cls(engine, created["Id"], sock, first)

    async def write(self, data: bytes) -> None:
        """Write to the process's stdin; a process that has closed it ignores the rest."""
        try:
            await self._loop.sock_sendall(self._sock, data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def end_input(self) -> None:
        """Close the process's stdin."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has closed already

    async def frames(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """(1 for stdout or 2 for stderr, bytes), until the process and all who hold its output have ended."""
        while True:
            while len(self._buffer) < _HEADER.size:
                if not await self._fill():
                    return
            stream, size = _HEADER.unpack_from(self._buffer)
            del self._buffer[: _HEADER.size]
            while size:
                if not self._buffer and not await self._fill():
                    return
                piece = bytes(self._buffer[:size])
                del self._buffer[: len(piece)]
                size -= len(piece)
                yield stream, piece

    async def _fill(self) -> bool:
        try:
            data = await self._loop.sock_recv(self._sock, _READ)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)

    async def exit_code(self) -> int | None:
        """The process's exit status; None while it runs."""
        state: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(self._id))
        code: int | None = None if state["Running"] else state["ExitCode"]
        return code

    def close(self) -> None:
        """Drop the stream; the process is not killed by that."""
        self._sock.close()
