"""One running command: separate and complete streams, exit status, signals, user, descendants."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_server.errors import MalformedRequest, SandboxExhausted, SandboxLost, UnknownUser
from sandbox_server.sandbox.base import Limits, Process, ProcessEnd, Size, Stream
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from tests.waiting import eventually

from .backends import LEFT_BEHIND, unlike_gvisor
from .specs import gone, running, spec


async def read(process: Process) -> tuple[bytes, bytes, ProcessEnd]:
    """All of its output (a terminal's with stdout's) and its end, within 30 s."""
    streams = {stream: bytearray() for stream in Stream}
    async with asyncio.timeout(30):
        async for stream, data in process.output():
            assert 0 < len(data) <= 1 << 15
            streams[stream] += data
        end = await process.wait()
    return bytes(streams[Stream.STDOUT] + streams[Stream.PTY]), bytes(streams[Stream.STDERR]), end


async def bash(sandbox: BashSandbox, script: str) -> tuple[bytes, bytes, ProcessEnd]:
    """`script` run as a process."""
    return await read(await sandbox.start(["bash", "-c", script]))


@pytest.mark.parametrize(
    ("script", "out", "err"),
    [
        ("printf out; printf err >&2", b"out", b"err"),
        ("echo out; echo err >&2", b"out\n", b"err\n"),
        (r"printf '\0\377\n\0'; printf '\376' >&2", b"\0\xff\n\0", b"\xfe"),
        ("true", b"", b""),
        ("exec >&- 2>&-; sleep 0.1", b"", b""),
        ("cat", b"", b""),
    ],
)
async def test_streams(shared: BashSandbox, script: str, out: bytes, err: bytes) -> None:
    """A byte lost, added, or on the wrong stream would change a test's log, or a file that is read with `cat`."""
    assert await bash(shared, script) == (out, err, ProcessEnd(0))


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("exit 0", ProcessEnd(0)),
        ("exit 7", ProcessEnd(7)),
        ("exit 137", ProcessEnd(137)),
        ("kill -9 $$", ProcessEnd(-1, 9)),
        ("kill -SEGV $$", ProcessEnd(-1, 11)),
        ("(sleep 0.3; kill -CONT $$) & kill -STOP $$; exit 3", ProcessEnd(3)),
        ("kill 0", ProcessEnd(143)),
    ],
)
async def test_ends(shared: BashSandbox, script: str, end: ProcessEnd) -> None:
    """An exit code would pass for a kill, a stop for an exit, or the channel would end with its command."""
    assert (await bash(shared, script))[2] == end
    assert await bash(shared, "echo next") == (b"next\n", b"", ProcessEnd(0))


async def test_what_cannot_be_run(shared: BashSandbox) -> None:
    """It gives an exit code as in a shell, not an error of the service."""
    out, err, end = await read(await shared.start(["no-such-command-x"]))
    assert (out, end) == (b"", ProcessEnd(127)) and b"no-such-command-x" in err
    out, err, end = await read(await shared.start(["true"], cwd="/no/such"))
    assert (out, end) == (b"", ProcessEnd(126)) and b"/no/such" in err


async def test_stdin(shared: BashSandbox) -> None:
    """A command would wait forever for its input, or its channel would execute unread input."""
    process = await shared.start(["cat"], stdin=True)
    reader = process.output()
    for piece in (b"one\n", b"\0\xfftwo"):
        await process.write(piece)
        assert await anext(reader) == (Stream.STDOUT, piece)
    await process.close_stdin()
    assert [piece async for piece in reader] == []
    assert await process.wait() == ProcessEnd(0)
    process = await shared.start(["head", "-c", "1"], stdin=True)
    await process.write(b"x" + b"00000019touch /tmp/was-run\n" * 1000)
    assert await read(process) == (b"x", b"", ProcessEnd(0))
    assert await bash(shared, "ls /tmp/was-run 2> /dev/null") == (b"", b"", ProcessEnd(2))


async def test_signals(shared: BashSandbox) -> None:
    """A signal would miss its process, or reach another one that reuses its PID."""
    process = await shared.start(["bash", "-c", "trap 'echo int' INT; echo ready; while :; do sleep 0.05; done"])
    reader = process.output()
    assert await anext(reader) == (Stream.STDOUT, b"ready\n")
    assert await bash(shared, f"kill -0 {process.pid}") == (b"", b"", ProcessEnd(0))
    assert await process.signal(2)
    assert await anext(reader) == (Stream.STDOUT, b"int\n")
    assert await process.signal(15)
    assert [piece async for piece in reader] == []
    assert await process.wait() == ProcessEnd(-1, 15)
    assert not await process.signal(15)


async def test_timeout(shared: BashSandbox) -> None:
    """A command would run past its timeout and block the sandbox, or its earlier output would be lost."""
    began = time.monotonic()
    process = await shared.start(["bash", "-c", "printf partial; sleep 4711"], timeout_s=0.5)
    assert await read(process) == (b"partial", b"", ProcessEnd(-1, 9, timed_out=True))
    assert time.monotonic() - began < 20
    assert await gone(shared, "4711")


async def test_what_lives_on(shared: BashSandbox) -> None:
    """A child that keeps the output open would delay the end, or write into the next command's output."""
    script = "for i in $(seq 200); do sleep 0.1; echo late; echo late >&2; done"
    began = time.monotonic()
    assert await bash(shared, f"({script}) & setsid bash -c '{script}' & printf whole") == (
        b"whole",
        b"",
        ProcessEnd(0),
    )
    assert time.monotonic() - began < 15
    for _ in range(5):
        assert await bash(shared, "sleep 0.2; echo next") == (b"next\n", b"", ProcessEnd(0))
    await bash(shared, "pkill -f '[e]cho late'")
    assert await gone(shared, "echo late")


async def test_users(shared: BashSandbox) -> None:
    """A command as another user would run as root, or in root's home."""
    await bash(shared, "useradd -m -d '/home/a gent' agent 2> /dev/null; mkdir -p '/home/a gent/sub'")
    show = ["bash", "-c", 'echo "$(id -un) $HOME $USER $LOGNAME $PWD"']
    for _ in range(2):
        out, _err, _ = await read(await shared.start(show, user="agent", home_cwd=True))
        assert out == b"agent /home/a gent agent agent /home/a gent\n"
    out, _err, _ = await read(await shared.start(show, user="agent", home_cwd=True, cwd="sub"))
    assert out.endswith(b"/home/a gent/sub\n")
    out, _err, _ = await read(await shared.start(show, home_cwd=True))
    assert out == b"root /root root root /root\n"
    with pytest.raises(UnknownUser):
        await shared.start(show, user="no-such-user")
    await bash(shared, "usermod -u 4242 agent")
    assert (await read(await shared.start(["id", "-u"], user="agent")))[0] == b"4242\n"


@unlike_gvisor(LEFT_BEHIND)
async def test_a_tree_of_another_user(shared: BashSandbox) -> None:
    """Root cannot see the environment of another user's processes; they would outlive their command."""
    script = "env -i setsid sleep 4711 & (env -i setsid sh -c 'sleep 4711 & sleep 4711' &); sleep 4711"
    process = await shared.start(["bash", "-c", script], user="nobody", timeout_s=0.7)
    assert (await read(process))[2].timed_out
    assert await gone(shared, "4711")


@unlike_gvisor(LEFT_BEHIND)
async def test_kill_tree_after_its_end(shared: BashSandbox) -> None:
    """A command's leftover processes could not be killed, or those of others would be killed too."""
    other = await shared.start(["sleep", "4712"])
    process = await shared.start(["bash", "-c", "env -i setsid sleep 4711 & (setsid sleep 4711 &)"])
    assert (await read(process))[2] == ProcessEnd(0)
    assert await running(shared, "4711") == 2
    await process.kill_tree()
    assert await gone(shared, "4711")
    assert await running(shared, "4712") == 1
    await other.kill_tree()
    assert await other.wait() == ProcessEnd(-1, 9)


async def test_detached(shared: BashSandbox) -> None:
    """A command whose reader is gone would block in its next write."""
    process = await shared.start(["bash", "-c", "head -c 3000000 /dev/zero; echo > /tmp/written"])
    process.detach()
    assert await process.wait() == ProcessEnd(0)
    assert await bash(shared, "rm /tmp/written") == (b"", b"", ProcessEnd(0))


async def test_a_slow_reader(shared: BashSandbox) -> None:
    """Output that nobody reads would fill the server's memory."""
    process = await shared.start(["bash", "-c", "head -c 30000000 /dev/zero; echo > /tmp/through"])
    reader = process.output()
    await anext(reader)
    await asyncio.sleep(0.5)
    assert await bash(shared, "ls /tmp/through 2> /dev/null") == (b"", b"", ProcessEnd(2))
    rest = 0
    async for _, data in reader:
        rest += len(data)
    assert rest > 29_000_000
    assert await process.wait() == ProcessEnd(0)


async def test_terminal(shared: BashSandbox) -> None:
    """A terminal would have no size, or not its new one, or no end of input."""
    process = await shared.start(["bash", "--norc", "-c", "stty size; read x; stty size; cat"], pty=Size(30, 91))
    reader = process.output()
    assert await anext(reader) == (Stream.PTY, b"30 91\r\n")
    await process.resize(Size(11, 22))
    await process.write(b"\n")
    seen = b""
    async with asyncio.timeout(10):
        while b"11 22" not in seen:
            seen += (await anext(reader))[1]
        await process.close_stdin()
        async for _, data in reader:
            seen += data
    assert await process.wait() == ProcessEnd(0)


async def test_a_killed_channel(shared: BashSandbox) -> None:
    """A policy that kills what runs its command would hang us, or the next command."""
    for _ in range(3):
        assert (await bash(shared, "kill -9 $PPID; sleep 4711"))[2] == ProcessEnd(-1, 9)
        assert await gone(shared, "4711")
    assert await bash(shared, "echo next") == (b"next\n", b"", ProcessEnd(0))


async def test_forged_ends(shared: BashSandbox) -> None:
    """A command could forge its end by its output or by writing to its channel."""
    script = (
        "ps -eo args; env; for i in 0 1 2; do cat /proc/$PPID/environ; done; printf '%032d 0 exited free\\n' 0; exit 9"
    )
    out, _, end = await bash(shared, script)
    assert end == ProcessEnd(9) and out.endswith(b"0" * 32 + b" 0 exited free\n")


async def test_forty_at_once(runtime: DockerRuntime) -> None:
    """Concurrent commands would mix their output, or wait for each other."""
    sandbox = await runtime.create(spec(limits=Limits(memory_mb=1024, pids=512)))
    try:
        ends = await asyncio.gather(*(bash(sandbox, f"sleep 0.2; echo {i}; echo {i} >&2; exit {i}") for i in range(40)))
        assert ends == [(b"%d\n" % i, b"%d\n" % i, ProcessEnd(i)) for i in range(40)]
    finally:
        await runtime.remove(sandbox.container_id)


def processes_of(container_id: str) -> int:
    """Counted on the host: Podman's `top` starts a process inside, which a full sandbox refuses."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        with suppress(OSError):  # ended meanwhile
            found += container_id in path.read_text()
    return found


@unlike_gvisor("bounds no processes with --ignore-cgroups")
async def test_at_the_limit_of_processes(runtime: DockerRuntime) -> None:
    """A command would hang for the 15 s that a shell tries to fork, and what fills the sandbox outlive its timeout."""
    sandbox = await runtime.create(spec(limits=Limits(memory_mb=256, pids=40)))
    try:
        await bash(sandbox, "true")
        bomb = await sandbox.start(["bash", "-c", "while :; do sleep 4711 & done 2> /dev/null"], timeout_s=8)

        async def full() -> bool:
            return await asyncio.to_thread(processes_of, sandbox.container_id) >= 38

        await eventually(full)
        began = time.monotonic()
        with pytest.raises(SandboxExhausted):
            await sandbox.start(["true"])
        assert time.monotonic() - began < 12
        assert (await read(bomb))[2].timed_out
        assert await gone(sandbox, "4711")
    finally:
        await runtime.remove(sandbox.container_id)


@pytest.fixture
async def sleeping(sandbox: BashSandbox) -> AsyncIterator[Process]:
    """A process in a container of its own."""
    yield await sandbox.start(["sleep", "4711"])


async def test_the_container_ends(sandbox: BashSandbox, sleeping: Process) -> None:
    """The reader would wait forever, or get an exit status."""
    waiting = asyncio.create_task(sleeping.wait())
    await asyncio.sleep(0.1)
    await sandbox._container.kill()
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(waiting, 20)
    with pytest.raises(SandboxLost):
        await sandbox.start(["true"])


async def test_the_container_is_started_again(sandbox: BashSandbox, sleeping: Process) -> None:
    """A command from before the restart would hang, or a new one would use an old channel."""
    await sandbox.restart()
    assert await asyncio.wait_for(sleeping.wait(), 20) == ProcessEnd(-1, 9)
    assert await bash(sandbox, "echo next") == (b"next\n", b"", ProcessEnd(0))


async def test_a_cancelled_start(shared: BashSandbox) -> None:
    """A caller that went away would leave its command running."""
    for after_s in (0.0, 0.001, 0.003, 0.02):
        task = asyncio.create_task(shared.start(["sleep", "4711"]))
        await asyncio.sleep(after_s)
        task.cancel()
        try:
            process = await task
        except asyncio.CancelledError:
            assert await gone(shared, "4711"), after_s
        else:
            await process.kill_tree()


async def test_no_command(shared: BashSandbox) -> None:
    """A NUL byte would leave the channel waiting for the rest of its request."""
    for argv in (["echo", "a\0b"], ["echo", "\ud800"], []):
        with pytest.raises(MalformedRequest):
            await shared.start(argv)


async def test_closed_under_a_reader(runtime: DockerRuntime) -> None:
    """A reader would wait forever when its sandbox is removed."""
    sandbox = await runtime.create(spec())
    reading = asyncio.create_task(read(await sandbox.start(["sleep", "4711"])))
    await asyncio.sleep(0.2)
    await runtime.remove(sandbox.container_id)
    with pytest.raises(SandboxLost):
        await asyncio.wait_for(reading, 10)
