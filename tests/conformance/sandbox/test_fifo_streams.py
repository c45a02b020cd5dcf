"""FIFOs of commands and file operations: whatever happens to the process behind them, and whatever a container does
with them, all that runs ends. On both event loops: uvloop, which the server uses, tells less of a descriptor."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.process import Process, ProcessEnd, Stream

from .backends import Backend
from .specs import begun, gone, spec

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HELD = "for f in /proc/$PPID/fd/*; do exec {x}<> $f; done 2> /dev/null; "
"""Opens all that the channel's bash has open."""


@pytest.fixture(autouse=True)
def with_fifos(backend: Backend) -> None:
    """These tests are of an engine that uses them."""
    if backend.fifos is None:
        pytest.skip(f"{backend.name} carries the bytes of its commands")


def ran(loop: str, backend: Backend, test: Callable[[DockerRuntime, BashSandbox], Awaitable[None]]) -> None:
    """Run `test` with a sandbox without a shell, on an event loop of its own."""

    async def run() -> None:
        runtime = backend.runtime()
        sandbox = await runtime.create(spec(with_shell=False))
        try:
            async with asyncio.timeout(90):
                await test(runtime, sandbox)
        finally:
            await runtime.remove(sandbox.container_id)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


async def started(sandbox: BashSandbox, script: str, *, stdin: bool = False) -> Process:
    """`script` run as a process without a timeout."""
    return await sandbox.start(["bash", "-c", script], stdin=stdin)


async def ended(sandbox: BashSandbox, script: str) -> ProcessEnd:
    """How `script` ended."""
    return await (await started(sandbox, script)).wait()


def parent(pid: int) -> int:
    """The process that `pid` is a child of."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


KILLED = {
    "its channel is killed": "kill -9 $PPID; sleep 4711",
    "its channel is killed, its streams are held": f"{HELD} kill -9 $PPID; sleep 4711",
    "its channel is killed, its streams are held and filled": f"{HELD} kill -9 $PPID; yes > /proc/$$/fd/1",
    "it writes into the engine's stream": "yes > /proc/$PPID/fd/9; sleep 4711",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_command_ends_with_its_channel(backend: Backend, loop: str) -> None:
    """A policy that kills what runs its command would have it wait until its timeout."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        ends = await asyncio.gather(*(ended(sandbox, script) for script in KILLED.values()))
        assert dict(zip(KILLED, ends, strict=True)) == dict.fromkeys(KILLED, ProcessEnd(-1, signal.SIGKILL))
        assert await gone(sandbox, "4711") and await gone(sandbox, "yes")
        assert await ended(sandbox, "exit 3") == ProcessEnd(3)

    ran(loop, backend, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_input_that_nobody_reads(backend: Backend, loop: str) -> None:
    """Whoever writes it would wait for ever for a process that is dead, or whose FIFO is held by others."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        script = f"{HELD} read -r; kill -9 $PPID; sleep 4711"
        processes = [await started(sandbox, text, stdin=True) for text in (script, script.removeprefix(HELD))]
        writes = [asyncio.ensure_future(one.write(b"go\n" + bytes(1 << 20))) for one in processes for _ in range(2)]
        assert await asyncio.gather(*(one.wait() for one in processes)) == [ProcessEnd(-1, signal.SIGKILL)] * 2
        await asyncio.gather(*writes)

    ran(loop, backend, test)


def test_a_command_whose_channel_stands_still(backend: Backend) -> None:
    """It would outlast its timeout: nobody can report its end."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        script = f"{HELD} kill -STOP $PPID; yes; sleep 4711"
        process = await sandbox.start(["bash", "-c", script], timeout_s=1)
        assert await process.wait() == ProcessEnd(-1, signal.SIGKILL, timed_out=True)
        assert await gone(sandbox, "4711")

    ran("uvloop", backend, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_file_whose_channel_is_killed(backend: Backend, loop: str) -> None:
    """Its reader or writer would wait for a minute."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        kill = "kill -9 $(ps -eo pid,args | grep -- '[-]-norc -p -s' | cut -c1-7)"

        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await ended(sandbox, kill)
            for _ in range(64):
                yield bytes(1 << 16)

        with pytest.raises(SandboxLost, match="cut off"):
            await sandbox.put("/tmp/put", chunks())
        await ended(sandbox, "truncate -s 8M /tmp/get")
        pieces = sandbox.get("/tmp/get")
        await anext(pieces)
        await ended(sandbox, kill)
        with pytest.raises(SandboxLost, match="cut off"):
            async for _ in pieces:
                pass

    ran(loop, backend, test)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", ["container", "shim"])
def test_a_command_ends_with_its_container(backend: Backend, loop: str, what: str) -> None:
    """The death of all processes at once is a loss of the sandbox, not the command's end."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        process = await started(sandbox, f"{HELD} sleep 4711", stdin=True)
        waiting = asyncio.ensure_future(process.wait())
        writing = asyncio.ensure_future(process.write(bytes(1 << 20)))
        await begun(sandbox, "4711")
        seen = await backend.engine.call(lambda api: api.inspect_container(sandbox.container_id))
        first = seen["State"]["Pid"]
        os.kill(first if what == "container" else parent(first), signal.SIGKILL)
        with pytest.raises(SandboxLost):
            await waiting
        await writing

    ran(loop, backend, test)


def test_the_engines_stream_is_not_inherited(backend: Backend) -> None:
    """A command would see a descriptor that is not its own, and could end itself by writing there."""

    async def test(runtime: DockerRuntime, sandbox: BashSandbox) -> None:
        process = await sandbox.start(["ls", "/proc/self/fd"])
        seen = b"".join([data async for stream, data in process.output() if stream is Stream.STDOUT])
        assert seen.split() == [b"0", b"1", b"2", b"3"]  # 3: the folder itself

    ran("uvloop", backend, test)
