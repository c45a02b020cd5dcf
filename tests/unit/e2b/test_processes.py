"""Followers of a command: each gets all output, none blocks the command for ever, and none is required."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from sandbox_server.boxes.command import CommandLine
from sandbox_server.boxes.processes import PIECE, Follower, FollowerTooSlow, OutputEnded, Processes, ProcessLimits
from sandbox_server.errors import SandboxLost, UnknownProcess
from sandbox_server.sandbox.base import ProcessEnd, Size, Stream


class Played:
    """A command with given output; only its faults and its pace are staged."""

    def __init__(self, pid: int, pieces: Sequence[bytes], end: ProcessEnd | None = None) -> None:
        self.pid = pid
        self.handed_out = 0
        self._pieces = pieces
        self._end = end or ProcessEnd(0)
        self.go = asyncio.Event()
        self.go.set()
        self.lost = False

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        for piece in self._pieces:
            await self.go.wait()
            self.handed_out += 1
            yield Stream.STDOUT, piece
        await self.go.wait()
        if self.lost:
            raise SandboxLost("the container ended")

    async def wait(self) -> ProcessEnd:
        return self._end

    async def write(self, data: bytes) -> None: ...

    async def close_stdin(self) -> None: ...

    async def signal(self, number: int) -> bool:
        return True

    async def resize(self, size: Size) -> None: ...

    async def kill_tree(self) -> None: ...

    def detach(self) -> None: ...


async def received(follower: Follower) -> list[bytes]:
    """Everything that a follower gets."""
    pieces = []
    try:
        while True:
            piece = await follower.next(5)
            if piece is not None:
                pieces.append(piece[1])
    except OutputEnded:
        follower.close()
        return pieces


async def test_many_followers() -> None:
    """A second client does not take output away from the first."""
    processes = Processes()
    process = Played(1, [b"a", b"b" * PIECE, b"c" * 10] * 50)
    running, first = processes.add("s", process, CommandLine(["x"]))
    second = running.follow()
    one, two = await asyncio.gather(received(first), received(second))
    assert b"".join(one) == b"".join(two) == b"".join([b"a", b"b" * PIECE, b"c" * 10] * 50)
    assert max(map(len, one)) <= PIECE
    await processes.close()


async def test_flow_control() -> None:
    """Output faster than its client does not fill the server's memory."""
    limits = ProcessLimits(backlog_bytes=10 * PIECE)
    processes = Processes(limits)
    process = Played(1, [b"x" * PIECE] * 1000)
    _, follower = processes.add("s", process, CommandLine(["x"]))
    await asyncio.sleep(0.05)
    assert process.handed_out <= 11
    assert len(b"".join(await received(follower))) == 1000 * PIECE
    await processes.close()


async def test_a_stalled_follower() -> None:
    """A client that reads nothing does not block the command or other clients for ever."""
    processes = Processes(ProcessLimits(backlog_bytes=10 * PIECE, stall_s=0.1))
    process = Played(1, [b"x" * PIECE] * 100)
    running, stalled = processes.add("s", process, CommandLine(["x"]))
    other = running.follow()
    assert len(b"".join(await received(other))) == 100 * PIECE
    with pytest.raises(FollowerTooSlow):
        while True:
            await stalled.next(5)
    await processes.close()


async def test_without_followers() -> None:
    """A client that disconnects does not leave the command blocked."""
    processes = Processes(ProcessLimits(backlog_bytes=PIECE, stall_s=60))
    running, follower = processes.add("s", Played(1, [b"x" * PIECE] * 100), CommandLine(["x"]))
    await asyncio.sleep(0.01)
    follower.close()
    await asyncio.wait_for(running.over.wait(), 5)
    await processes.close()


async def test_found_and_forgotten() -> None:
    """A late client still learns how its command ended, and the server keeps only some ends."""
    processes = Processes(ProcessLimits(ended_s=0.2))
    process = Played(7, [])
    process.go.clear()
    running, _ = processes.add("s", process, CommandLine(["x"], tag="t"))
    assert processes.listed("s") == [running]
    assert processes.listed("other") == []
    assert processes.find("s", pid=7) is processes.find("s", tag="t") is running
    process.go.set()
    await running.over.wait()
    assert processes.listed("s") == []
    with pytest.raises(UnknownProcess):
        processes.find("s", pid=7)
    assert processes.find("s", pid=7, ended=True).end == ProcessEnd(0)
    assert await received(running.follow()) == []
    await asyncio.sleep(0.3)
    with pytest.raises(UnknownProcess):
        processes.find("s", pid=7, ended=True)
    await processes.close()


async def test_a_lost_box() -> None:
    """A follower does not wait for ever for a command whose container is gone."""
    processes = Processes()
    process = Played(1, [b"x"])
    process.lost = True
    running, follower = processes.add("s", process, CommandLine(["x"]))
    assert await received(follower) == [b"x"]
    assert running.end is None
    assert isinstance(running.fault, SandboxLost)
    await processes.close()


async def test_keepalive() -> None:
    """A silent stream gets keepalives, so that proxies do not cut it."""
    processes = Processes()
    process = Played(1, [b"x"])
    process.go.clear()
    _, follower = processes.add("s", process, CommandLine(["x"]))
    assert await follower.next(0.01) is None
    process.go.set()
    assert await follower.next(5) == (Stream.STDOUT, b"x")
    await processes.close()


async def test_of_many_that_ended_the_last_are_known() -> None:
    """A box that is polled for weeks does not fill the memory."""
    processes = Processes(ProcessLimits(ended=2))
    for pid in (1, 2, 3):
        running, _ = processes.add("s", Played(pid, [], ProcessEnd(pid)), CommandLine(["x"], tag="t"[: pid % 2]))
        await running.over.wait()
        await asyncio.sleep(0)
    with pytest.raises(UnknownProcess):
        processes.find("s", pid=1, ended=True)
    assert [processes.find("s", pid=pid, ended=True).end for pid in (2, 3)] == [ProcessEnd(2), ProcessEnd(3)]
    await processes.close()


async def test_a_number_that_is_used_again() -> None:
    """Two commands with the same process id are not confused."""
    processes = Processes()
    older, _ = processes.add("s", Played(7, [], ProcessEnd(1)), CommandLine(["x"]))
    await older.over.wait()
    younger = Played(7, [])
    younger.go.clear()
    running, _ = processes.add("s", younger, CommandLine(["x"]))
    assert processes.find("s", pid=7, ended=True) is running
    assert processes.listed("s") == [running]
    younger.go.set()
    await running.over.wait()
    assert processes.find("s", pid=7, ended=True).end == ProcessEnd(0)
    await processes.close()
