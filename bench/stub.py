"""A server that answers every request at once: what a call costs the client itself and the loopback."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_BODY = b'{"content": "EXECUTION RESULT of [execute_bash]:\\ntrue[Command finished with exit code 0]"}'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_START_S = 20.0


@asynccontextmanager
async def stub() -> AsyncIterator[str]:
    """Its URL; a process of its own, as our server is."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.stub", stdout=PIPE)
    try:
        assert process.stdout is not None  # it is a pipe
        async with asyncio.timeout(_START_S):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(_ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(_serve())
