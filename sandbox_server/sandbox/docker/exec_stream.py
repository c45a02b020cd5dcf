"""The streams of a process that runs beside the shell: stdin, and separate stdout and stderr unless on a terminal."""

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Any, cast

from sandbox_server.sandbox.docker.engine import Engine, follow

_HEADER = struct.Struct(">BxxxL")  # stream (1 stdout, 2 stderr), three zero bytes, length
_PIECE = 1 << 15
_AHEAD = 1 << 17  # bytes read from the socket ahead of the consumer
_STREAMS, _ERRORS = (1, 2), 2
_TERMINAL = 3


class _Stream(asyncio.Protocol):
    """The bytes of a socket. It stays registered with the event loop: `sock_recv` takes ten system calls per piece."""

    def __init__(self, first: bytes) -> None:
        self.buffer = bytearray(first)
        self._ended = False
        self._paused = False
        self._transport: asyncio.Transport | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @classmethod
    async def of(cls, sock: socket.socket, first: bytes) -> "_Stream":
        """Wrap a socket, which it owns from now on; `first` are bytes already read from it."""
        stream = cls(first)
        try:
            await follow(sock, stream)
        except BaseException:
            stream.close()
            sock.close()
            raise
        return stream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._news.set()
        if len(self.buffer) >= _AHEAD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._end()
        return True  # keep it open; its owner closes it

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    async def more(self) -> bool:
        """Wait for more bytes than `buffer` holds; False at the end of the stream. May be cancelled."""
        if self._ended:
            return False
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        had = len(self.buffer)
        while len(self.buffer) == had and not self._ended:
            self._news.clear()
            await self._news.wait()
        return len(self.buffer) > had

    async def write(self, data: bytes) -> None:
        """Queue `data`; return when little is waiting to be sent. Data after the end is lost."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if not self._room.is_set():
                await self._room.wait()

    def end_input(self) -> None:
        """Close the process's stdin."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Close at once and wake all waiting callers."""
        self._end()
        self._room.set()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        self._ended = True
        self._news.set()


class DockerExecStream:
    """Implements `sandbox.engine.ExecStream`. Source: Engine API, "Attach to a container", stream format."""

    def __init__(self, engine: Engine, exec_id: str, stream: _Stream, *, tty: bool = False) -> None:
        self._engine = engine
        self._id = exec_id
        self._bytes = stream
        self._tty = tty
        self._stream = _TERMINAL if tty else 0
        self._left = 0  # bytes left in the current frame

    @classmethod
    async def open(
        cls,
        engine: Engine,
        container_id: str,
        argv: Sequence[str],
        *,
        user: str,
        tty: bool,
    ) -> "DockerExecStream":
        """Start `argv` in the container. Raises as `sandbox.engine.Container.exec`."""
        created: dict[str, Any] = await engine.call(
            lambda api: api.exec_create(
                container_id,
                list(argv),
                stdin=True,
                workdir="/",
                user=user,
                stdout=True,
                stderr=True,
                tty=tty,
            )
        )
        sock, first = await engine.hijack(f"/exec/{created['Id']}/start", {"Detach": False, "Tty": tty})
        return cls(engine, created["Id"], await _Stream.of(sock, first), tty=tty)

    async def write(self, data: bytes) -> None:
        """See `ExecStream.write`."""
        await self._bytes.write(data)

    def end_input(self) -> None:
        """See `ExecStream.end_input`."""
        self._bytes.end_input()

    async def receive(self) -> tuple[int, bytes] | None:
        """See `ExecStream.receive`."""
        buffer = self._bytes.buffer
        while not self._tty and not self._left:
            while len(buffer) < _HEADER.size:
                if not await self._bytes.more():
                    return None
            stream, self._left = _HEADER.unpack_from(buffer)
            self._stream = stream if stream in _STREAMS else _ERRORS  # other numbers: the engine's own messages
            del buffer[: _HEADER.size]
        if not buffer and not await self._bytes.more():
            return None
        piece = bytes(buffer[: _PIECE if self._tty else min(self._left, _PIECE)])
        del buffer[: len(piece)]
        if not self._tty:
            self._left -= len(piece)
        return self._stream, piece

    async def exit_code(self) -> int | None:
        """See `ExecStream.exit_code`."""
        state: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(self._id))
        code: int | None = None if state["Running"] else state.get("ExitCode")
        return code

    async def resize(self, rows: int, cols: int) -> None:
        """See `ExecStream.resize`."""
        await self._engine.call(lambda api: api.exec_resize(self._id, height=rows, width=cols))

    def close(self) -> None:
        """See `ExecStream.close`."""
        self._bytes.close()
