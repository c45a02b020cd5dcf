"""Programs that the server starts, on its own event loop: uvloop, which the tests' loop is not."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import uvloop

from sandbox_server.spawned import Spawned, reading

T = TypeVar("T")


def on_uvloop(work: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def test_closing_a_pipe_takes_no_descriptor_from_a_thread() -> None:
    """A grading waited for ever: its connection had the number that a pipe was closed by for the second time."""
    stolen: list[OSError] = []
    over = threading.Event()

    def open_and_close() -> None:
        while not over.is_set():
            try:
                for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]:
                    os.close(descriptor)
            except OSError as error:
                stolen.append(error)

    async def read_outputs() -> None:
        for _ in range(100):
            process = Spawned(["true"], stdout=subprocess.PIPE)
            assert process.stdout is not None
            with reading(process.stdout) as pipe:
                assert await pipe.read(1) == b""
            await process.wait()

    threads = [threading.Thread(target=open_and_close) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        on_uvloop(read_outputs)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert stolen == []


def test_output_arrives_whole_and_a_cancelled_reader_closes_the_pipe() -> None:
    async def play() -> tuple[int, bool]:
        process = Spawned(["sh", "-c", "head -c 3000000 /dev/zero; exec sleep 60"], stdout=subprocess.PIPE)
        assert process.stdout is not None
        got = 0
        with suppress(TimeoutError), reading(process.stdout) as pipe:
            while got < 3_000_000:
                got += len(await pipe.read(1 << 16))
            async with asyncio.timeout(0.05):
                await pipe.read(1)
        process.kill()
        await process.wait()
        return got, process.stdout.closed

    assert on_uvloop(play) == (3_000_000, True)
