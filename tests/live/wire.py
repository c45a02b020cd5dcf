"""A proxy between a server and the Docker engine that can be cut, silenced and repaired."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Wire:
    """Forwards TCP to the engine's socket. `cut`: connections break, new ones are refused; `hush`: nothing passes."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._serving: set[asyncio.Task[None]] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.mend()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def mend(self) -> None:
        """Forward normally again."""
        asyncio.run_coroutine_threadsafe(self._mend(), self._loop).result(10)

    def cut(self) -> None:
        """As when the daemon is killed."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    def hush(self) -> None:
        """As when the daemon hangs."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _mend(self) -> None:
        self._passes.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._passes.set()
        for connection in self._serving:
            connection.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0.1)  # the loop closes what was aborted

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        ends = [writer]
        try:
            if self._server is None:  # it was accepted just before the cut
                return
            there, back = await asyncio.open_unix_connection(self._engine)
            ends.append(back)
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._passes.wait()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


@contextlib.contextmanager
def wired(engine: str = "/var/run/docker.sock") -> Iterator[Wire]:
    """Run a wire for the duration of the block."""
    wire = Wire(engine)
    try:
        yield wire
    finally:
        wire.close()
