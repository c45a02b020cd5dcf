"""How the server reads a shell's FIFO while a program prints without a pause."""

import asyncio
import os
import threading
import time
from itertools import pairwise
from pathlib import Path

from sandbox_server.sandbox.bash import fifos
from sandbox_server.sandbox.bash.fifos import Fifos

_BYTES = 24 << 20
_TERMINAL = 4096  # bytes that a terminal hands on at a time
_WITHIN_S = 60


class _Reader:
    """Notes when each piece came."""

    def __init__(self) -> None:
        self.total = 0
        self.flooded_at: list[float] = []
        """Times of the pieces that came after `_FLOOD` bytes."""
        self._news = asyncio.Event()

    def received(self, data: bytes) -> None:
        if self.total > fifos._FLOOD:
            self.flooded_at.append(time.monotonic())
        self.total += len(data)
        self._news.set()

    async def until(self, total: int) -> None:
        async with asyncio.timeout(_WITHIN_S):
            while self.total < total:
                self._news.clear()
                await self._news.wait()


async def test_a_flood_is_read_whole_and_once_in_a_pause(tmp_path: Path) -> None:
    """A wake for each piece of a terminal took the server half a CPU, and delayed the actions of all others."""
    ends, reader = Fifos(tmp_path / "io"), _Reader()
    ends.make()
    assert ends.open(reader.received)

    def flood() -> None:
        with (tmp_path / "io/out").open("wb", buffering=0) as out:
            for _ in range(_BYTES // _TERMINAL):
                out.write(b"x" * _TERMINAL)

    writer = threading.Thread(target=flood)
    writer.start()
    try:
        await reader.until(_BYTES)
        assert reader.total == _BYTES
        assert reader.flooded_at
        assert min(then - now for now, then in pairwise(reader.flooded_at)) > 0.9 * fifos._PAUSE_S
        before, last = reader.flooded_at[-2:]
        assert last - before > 2 * fifos._PAUSE_S, "a long flood is read more slowly"
        # what the next action says first is read at once again
        ends.write(b"true\n")
        await asyncio.sleep(2 * fifos._LONGEST_PAUSE_S)
        out = os.open(tmp_path / "io/out", os.O_WRONLY)
        os.write(out, b"y")
        os.close(out)
        await reader.until(_BYTES + 1)
        assert ends._loop is not None and ends._loop.remove_reader(ends._out), "it waits for no pause"
    finally:
        await asyncio.to_thread(writer.join)
        ends.close()
