"""A server that answers every request at once, to measure the cost of the client itself and the loopback."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_ACTION = b'{"content": "EXECUTION RESULT of [execute_bash]:\\ntrue[Command finished with exit code 0]"}'
_BOX = b'{"templateID": "base", "sandboxID": "1", "clientID": "stub", "envdVersion": "0.6.4", "envdAccessToken": "t"}'
_COMMAND = (b'{"event": {"start": {"pid": 1}}}', b'{"event": {"end": {"exited": true, "status": "exit status 0"}}}')
"""envd's messages for a command that ended at once; source: Connect's streaming format."""


def _frame(flag: int, message: bytes) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def _answer(status: str, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


_STREAM = b"".join(_frame(0, event) for event in _COMMAND) + _frame(2, b"{}")
_ANSWERS = {
    b"/v2/sandboxes": _answer("201 Created", "application/json", _BOX),
    b"/process.Process/Start": _answer("200 OK", "application/connect+json", _STREAM),
}
_ANY = _answer("200 OK", "application/json", _ACTION)
_START_S = 20.0


@asynccontextmanager
async def stub() -> AsyncIterator[str]:
    """Run the stub in its own process, like our server; yield its URL."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.stub", stdout=PIPE)
    try:
        assert process.stdout is not None  # a pipe was requested
        async with asyncio.timeout(_START_S):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    server = await asyncio.start_server(_converse, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.lower().split(b"\r\n")
            if b"transfer-encoding: chunked" in lines:
                await reader.readuntil(b"0\r\n\r\n")
            else:
                lengths = (line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(next(lengths, b":0").split(b":")[1]))
            writer.write(_ANSWERS.get(head.split(b" ", 2)[1], _ANY))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(_serve())
