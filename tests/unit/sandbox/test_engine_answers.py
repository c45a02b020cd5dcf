"""What listens at the engine's address may be something else: a forward that failed, a proxy, an SSH server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.docker.engine import Engine

VERSION = b'{"ApiVersion": "1.41"}'


@asynccontextmanager
async def answering(socket: Path, answer: Callable[[], bytes]) -> AsyncIterator[Engine]:
    """An engine that tells its version, and from then on answers each request with `answer()`."""
    asked = 0

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(VERSION)
        writer.write(head + VERSION if asked == 1 else answer())
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(one, socket):
        engine = await asyncio.to_thread(lambda: Engine(f"unix://{socket}", timeout_s=5))
        try:
            yield engine
        finally:
            engine.close()


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 \r\n\r\n", b"HTTP/1.1 many OK\r\n\r\n"]
)
async def test_another_protocol_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    """The start of a session was a 500: its stream's status was taken out of whatever came."""
    async with answering(tmp_path / "engine.sock", lambda: answer) as engine:
        with pytest.raises(EngineUnavailable, match="no Docker daemon"):
            await engine.hijack("/containers/0/attach")
        with pytest.raises(EngineUnavailable):
            await engine.probe(timeout_s=5)
