"""One-off commands beside the shell: exact, limited streams; the timeout kills them with all their children."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator

import pytest

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Role
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime

from .backends import LEFT_BEHIND, Backend, unlike_gvisor
from .specs import gone, running, say, spec


@pytest.fixture(scope="module")
async def grading(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """A container whose channels run one command each; the last test kills it."""
    sandbox = await runtime.create(spec(role=Role.GRADE))
    yield sandbox
    await runtime.remove(sandbox.container_id)


async def test_streams_and_exit_code(shared: BashSandbox) -> None:
    """A grader reads stdout, stderr and the status apart, byte by byte."""
    result = await shared.exec(
        ["sh", "-c", "cat; printf 'e\\377\\0' >&2; exit 7"], timeout_s=10, stdin=b"in\0\xff\x1e\r\n"
    )
    assert (result.exit_code, result.timed_out) == (7, False)
    assert (result.stdout.head, result.stderr.head) == (b"in\0\xff\x1e\r\n", b"e\xff\0")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["no-such-command-x"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 137),
        (["-c"], 127),
        (["sh", "-c", "exit 255"], 255),
    ],
)
async def test_exit_codes(shared: BashSandbox, argv: list[str], code: int) -> None:
    """A command that cannot run would be an error of the service, or look as if it had run."""
    result = await shared.exec(argv, timeout_s=10)
    assert result.exit_code == code


async def test_arguments_are_not_text_of_a_shell(shared: BashSandbox) -> None:
    """An argument with quotes, blanks or line feeds would be split or run."""
    argv = ["printf", "%s|", "a b", "$HOME", "'", '"', "`x`", "\\", "", "new\nline", "é", "*", "-n", "--"]
    result = await shared.exec(argv, timeout_s=10)
    assert result.stdout.head.decode() == "".join(f"{a}|" for a in argv[2:])


async def test_merged_streams_keep_their_order(shared: BashSandbox) -> None:
    """A test log whose stderr comes apart could not be parsed."""
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done"
    result = await shared.exec(["bash", "-c", script], timeout_s=10, merge_streams=True)
    assert result.stdout.head.decode().split() == [f"{s}{i}" for i in range(1, 10) for s in ("out", "err")]
    assert result.stderr.head == b""


async def test_folder_environment_user(shared: BashSandbox) -> None:
    """A grader that asks for another folder, variable or user would silently get the default."""
    script = 'pwd; echo "$V"; id -u; echo ${SANDBOX_TOKEN-none}'
    result = await shared.exec(["sh", "-c", script], timeout_s=10, cwd="/usr", env={"V": "a b\nc='x'"}, user="65534")
    assert result.stdout.head.decode() == "/usr\na b\nc='x'\n65534\nnone\n"
    result = await shared.exec(["pwd"], timeout_s=10)
    assert result.stdout.head == b"/tmp\n"


async def test_missing_folder(shared: BashSandbox) -> None:
    """A folder that the policy removed would be an error of the service."""
    result = await shared.exec(["pwd"], timeout_s=10, cwd="/no/such/folder")
    assert result.exit_code not in (0, None)
    assert b"could not be started" in result.stderr.head
    assert result.stdout.head == b""


async def test_stdin_of_many_megabytes(shared: BashSandbox, backend: Backend) -> None:
    """A large patch goes in by stdin while output comes back: they must not deadlock."""
    data = bytes(range(256)) * 40_000
    result = await shared.exec(["cat"], timeout_s=30, stdin=data, keep_bytes=32 << 20)
    assert result.stdout.head == data
    result = await shared.exec(["head", "-c", "3"], timeout_s=30, stdin=data)
    if backend.name == "podman" and result.exit_code == 137:
        pytest.xfail("Podman 4.3 drops the output of an exec that ends before it has read its stdin")
    assert (result.stdout.head, result.exit_code) == (data[:3], 0)


async def test_no_stdin_is_its_end(shared: BashSandbox) -> None:
    """A command that reads its input would wait for its timeout."""
    result = await shared.exec(["cat"], timeout_s=5)
    assert (result.exit_code, result.timed_out) == (0, False)


async def test_large_output_is_bounded(shared: BashSandbox) -> None:
    """A chatty test suite would fill the server's memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await shared.exec(["sh", "-c", "yes | head -c 100000000; echo END"], timeout_s=60, keep_bytes=1000)
    assert (len(result.stdout.head), len(result.stdout.tail)) == (500, 500)
    assert result.stdout.dropped == 100_000_004 - 1000
    assert result.stdout.tail.endswith(b"END\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


ESCAPES, RESPAWNS = "escapes", "respawns"
TREES = {
    "plain": "sleep 4711",
    "children": "sleep 4711 & sleep 4711 & wait",
    ESCAPES: "setsid sleep 4711 & env -i setsid sleep 4711 &"
    " (env -i setsid sh -c 'sleep 4711 & sleep 4711' &); sleep 4711",
    "deaf": "trap '' INT TERM HUP; setsid nohup sleep 4711 > /dev/null & sleep 4711",
    "stopped": "sleep 4711 & kill -STOP $!; kill -STOP $$",
    RESPAWNS: "while :; do sh -c 'setsid sleep 4711 &'; sleep 0.05; done",
}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            script,
            id=name,
            marks=[unlike_gvisor(LEFT_BEHIND)] * (name in (ESCAPES, RESPAWNS)),
        )
        for name, script in TREES.items()
    ],
)
async def test_timeout_leaves_nothing(shared: BashSandbox, script: str) -> None:
    """Processes of an exec must not outlive it; the shell's own must not be killed."""
    await say(shared, "jobs %1 > /dev/null 2>&1 || { sleep 815 & }")
    inner = asyncio.create_task(shared.shell.run("sleep 2.5; echo whole", timeout_s=20))
    began = time.monotonic()
    result = await shared.exec(["bash", "-c", f"echo partial; {script}"], timeout_s=0.7)
    assert (result.exit_code, result.timed_out, result.stdout.head) == (None, True, b"partial\n")
    assert time.monotonic() - began < 20
    assert await gone(shared, "4711")
    assert await running(shared, "sleep 815") == 1
    assert b"whole" in (await inner).output.head


async def test_what_outlives_its_command_does_not_delay_it(shared: BashSandbox) -> None:
    """A server that a command leaves behind, with its output still open, would hold the command up to its timeout."""
    began = time.monotonic()
    result = await shared.exec(
        ["bash", "-c", "echo whole; env -i setsid sleep 4711 & (setsid sleep 4711 &)"], timeout_s=30
    )
    assert (result.exit_code, result.timed_out, result.stdout.head) == (0, False, b"whole\n")
    assert time.monotonic() - began < 25
    assert await running(shared, "sleep 4711") == 2
    await shared.exec(["pkill", "-f", "sleep 4711"], timeout_s=5)
    assert await gone(shared, "sleep 4711")


async def test_two_channels_at_once(shared: BashSandbox) -> None:
    """The end of one channel would kill another's processes."""
    one = asyncio.create_task(shared.exec(["sh", "-c", "sleep 1.2; echo one"], timeout_s=10))
    two = await shared.exec(["sleep", "4711"], timeout_s=0.5)
    assert two.timed_out
    assert (await one).stdout.head == b"one\n"


async def test_cancelled_leaves_nothing(shared: BashSandbox) -> None:
    """A caller that went away would leave its command running."""
    for after_s in (0.0, 0.02, 0.5):
        task = asyncio.create_task(shared.exec(["bash", "-c", "env -i setsid sleep 4711 & sleep 4711"], timeout_s=60))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await gone(shared, "4711"), after_s
    listed = await shared.exec(["ls", "/run/sandbox"], timeout_s=5)
    channels = [name for name in listed.stdout.head.split() if name.startswith(b"channel-")]
    assert len(channels) <= 2, "marks of former channels were left"


async def test_without_a_shell(runtime: DockerRuntime, engine: Engine) -> None:
    """A grading container has no shell; commands and timeouts work anyway, and its death is reported."""
    sandbox = await runtime.create(spec(role=Role.GRADE, with_shell=False))
    try:
        assert (await sandbox.exec(["pwd"], timeout_s=5)).stdout.head == b"/tmp\n"
        result = await sandbox.exec(["bash", "-c", "env -i setsid sleep 4711 & sleep 4711"], timeout_s=0.5)
        assert result.timed_out
        assert await gone(sandbox, "4711")
        dying = asyncio.create_task(sandbox.exec(["sleep", "4711"], timeout_s=60))
        await asyncio.sleep(0.5)
        await engine.call(lambda api: api.kill(sandbox.container_id))
        with pytest.raises(SandboxLost):
            await dying
        with pytest.raises(SandboxLost):
            await sandbox.exec(["true"], timeout_s=5)
    finally:
        await runtime.remove(sandbox.container_id)


@unlike_gvisor("bounds no memory with --ignore-cgroups")
async def test_out_of_memory_in_a_channel(sandbox: BashSandbox) -> None:
    """A test that eats all memory ends with its status; it must not take the session along silently."""
    result = await sandbox.exec(["tail", "/dev/zero"], timeout_s=60)
    assert result.exit_code in (1, 137)
    assert await say(sandbox, "echo alive") == "alive"


_SHOW = """
env; pwd -P; umask; cat; printf '%s|' "$0" "$@"; ls /proc/self/fd; echo err >&2; exit 7
"""


@pytest.mark.parametrize("merge", [False, True])
async def test_a_command_that_stood_by_differs_in_nothing(grading: BashSandbox, merge: bool) -> None:
    """A test that passes in one kind and fails in the other would be graded randomly."""
    await grading.exec(["ln", "-sfn", "/usr/bin", "/tmp/link"], timeout_s=5)
    argv = ["bash", "-c", _SHOW, "é", "a b", "", "'\"$x\n\\", "--"]
    results = []
    for standing_by in (0, 1):
        await grading.stand_by(standing_by)
        assert grading._exec_channels.parked == standing_by
        results.append(
            await grading.exec(
                argv,
                timeout_s=10,
                stdin=b"in\0\xff\n" * 10_000,
                cwd="/tmp/link",
                env={"A": "x'y\n ü", "HOME": "/root", "LC_ALL": "C"},
                merge_streams=merge,
            )
        )
    plain, stood = results
    assert (plain.stdout, plain.stderr, plain.exit_code) == (stood.stdout, stood.stderr, stood.exit_code)
    assert (stood.exit_code, stood.timed_out) == (7, False)
    assert b"\nPWD=/usr/bin\n" in stood.stdout.head


async def test_a_command_that_stood_by_is_killed_at_its_timeout(grading: BashSandbox) -> None:
    """Its child processes must be killed, earlier processes must not."""
    await say(grading, "sleep 4712 &")
    await grading.stand_by(2)
    result = await grading.exec(["bash", "-c", "env -i setsid sleep 4711 & sleep 4711"], timeout_s=1)
    assert (result.timed_out, result.exit_code) == (True, None)
    assert await gone(grading, "4711")
    assert await running(grading, "4712")
    assert (await grading.exec(["pwd"], timeout_s=5, cwd="/usr")).stdout.head == b"/usr\n"


async def test_what_a_command_that_stands_by_cannot_do(grading: BashSandbox) -> None:
    """It reports failures like any other command: no folder, no such program, killed; other users cannot use it."""
    await grading.stand_by(3)
    assert (await grading.exec(["true"], timeout_s=5, cwd="/no/such")).exit_code == 126
    assert (await grading.exec(["no-such-command-x"], timeout_s=5)).exit_code == 127
    assert (await grading.exec(["id", "-un"], timeout_s=5, user="nobody")).stdout.head == b"nobody\n"
    assert grading._exec_channels.parked == 1
    await grading._container.kill()
    with pytest.raises(SandboxLost):
        await grading.exec(["true"], timeout_s=5)
