"""Whatever ends the shell, its processes or its container, the session goes on and its answers are true."""

import asyncio
import secrets

import pytest

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Limits, ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime

from .backends import unlike_gvisor
from .specs import begun, say, shown, spec, there

ENDINGS = [
    ("exit", 0),
    ("exit 3", 3),
    ("(exit 5); exit", 5),
    ("exec true", 0),
    ("exec sh -c 'exit 8'", 8),
    ("kill -9 $$", 137),
    ("kill -HUP $$", 129),
    ("set -e; false", 1),
    ("set -eo pipefail; false | true; echo never", 1),
    ("trap '' INT TERM; exit", 0),
    ("trap 'echo bye' EXIT; exit 6", 6),
    ("bash -c 'kill -9 $PPID'", 137),
    ("logout", None),
]


@pytest.mark.parametrize(("command", "code"), ENDINGS)
async def test_a_shell_that_ends_is_replaced(shared: BashSandbox, command: str, code: int | None) -> None:
    """`exit` by the policy would end its session, or leave its folder and environment behind."""
    await shared.shell.run("cd /usr; export KEPT='7 \"x\"'; plain=1; f() { :; }", timeout_s=5)
    result = await shared.shell.run(f"echo partial\n{command}", timeout_s=15)
    assert shown(result).startswith("partial\n")
    assert "sandbox:" not in shown(result) and "noediting" not in shown(result)
    if code is not None:
        assert (result.outcome, result.exit_code) == (ShellOutcome.SHELL_ENDED, code), shown(result)
        assert result.shell_replaced
    assert result.cwd == "/usr"
    result = await shared.shell.run("echo alive $KEPT $PWD", timeout_s=5)
    assert (shown(result), result.shell_replaced) == ('alive 7 "x" /usr\n', False)
    assert await say(shared, "echo ${plain-gone}") == ("gone" if code is not None else "1")


@pytest.mark.parametrize(
    "command", ["exec 1>&-", "exec 2>&-", "exec 1>&- 2>&-; echo x", "exec 0<&-", "exec 0<&- 1>&- 2>&-"]
)
async def test_closed_streams(new_shell: BashSandbox, command: str) -> None:
    """A shell that can no longer read or speak would leave every later action without an answer."""
    kept = secrets.token_hex(4)
    await new_shell.shell.run(f"cd /usr; export KEPT={kept}", timeout_s=5)
    await new_shell.shell.run(command, timeout_s=15)
    assert await say(new_shell, "echo alive $KEPT $PWD", timeout_s=5) == f"alive {kept} /usr"


@pytest.mark.parametrize("stream", ["1", "2"])
async def test_redirected_streams_stay_so(new_shell: BashSandbox, stream: str) -> None:
    """`exec > log` is the policy's wish; the end of an action would not be seen."""
    await new_shell.shell.run(f"exec 7>&{stream} {stream}> /tmp/log", timeout_s=5)
    result = await new_shell.shell.run("echo out; echo err >&2; (exit 3)", timeout_s=5)
    assert (result.exit_code, shown(result)) == (3, "err\n" if stream == "1" else "out\n")
    await new_shell.shell.run(f"exec {stream}>&7", timeout_s=5)
    assert (await say(new_shell, "cat /tmp/log")) == ("out" if stream == "1" else "err")


async def test_the_last_state_is_the_one_at_the_exit(new_shell: BashSandbox) -> None:
    """What one action both sets and exits with would be lost."""
    await new_shell.shell.run("cd /usr; export LAST=5; exit", timeout_s=5)
    assert await say(new_shell, "echo $LAST $PWD") == "5 /usr"


async def test_a_shell_that_ends_while_it_saves_its_state(new_shell: BashSandbox) -> None:
    """Its variables were lost: the next shell started with half a file. Here the limit on file sizes ends the write."""
    await new_shell.shell.run("cd /usr; export ZZ_SAVED=3", timeout_s=5)
    await new_shell.shell.run("trap - EXIT; export PAD=$(printf %4000s x); ulimit -f 1", timeout_s=15)
    assert await say(new_shell, "echo ${ZZ_SAVED-lost} $PWD", timeout_s=15) == "3 /usr"
    assert await say(new_shell, "ulimit -f") != "1", "the shell has not been replaced"


async def test_a_shell_killed_between_actions(new_shell: BashSandbox) -> None:
    """The next action would be lost with the shell that no longer reads it."""
    pid = await say(new_shell, "cd /usr; export BETWEEN=7; echo $$")
    await new_shell.shell.run(f"(sleep 0.3; kill -9 {pid}; touch /tmp/killed) &", timeout_s=5)
    await there(new_shell, "/tmp/killed")
    result = await new_shell.shell.run("echo alive $BETWEEN $PWD", timeout_s=5)
    assert (result.outcome, shown(result)) == (ShellOutcome.FINISHED, "alive 7 /usr\n")


async def test_all_processes_killed(sandbox: BashSandbox) -> None:
    """`kill -9 -1` would end the session; it costs the processes, files and folder stay."""
    await sandbox.shell.run("cd /usr; echo kept > /var/tmp/f", timeout_s=5)
    result = await sandbox.shell.run("echo partial; sleep 0.2; kill -9 -1", timeout_s=20)
    assert shown(result).startswith("partial\n")
    # bash does not kill itself by `kill -9 -1`: it may report the end of the action, and run more, before all is gone
    told = result.outcome is ShellOutcome.RESTARTED
    async with asyncio.timeout(60):
        while not told:
            result = await sandbox.shell.run("cat /var/tmp/f; pwd", timeout_s=10)
            told = result.outcome is ShellOutcome.RESTARTED or result.shell_replaced
    result = await sandbox.shell.run("cat /var/tmp/f; pwd", timeout_s=10)
    assert (shown(result), result.exit_code, result.outcome) == ("kept\n/usr\n", 0, ShellOutcome.FINISHED)


@pytest.mark.parametrize("when", ["idle", "busy"])
async def test_container_killed_under_us(sandbox: BashSandbox, engine: Engine, when: str) -> None:
    """The daemon's restart or an operator's `docker kill` would lose the session, though its files are there."""
    await sandbox.shell.run("cd /usr; echo kept > /var/tmp/f", timeout_s=5)
    if when == "busy":
        running = asyncio.create_task(sandbox.shell.run("echo begun; sleep 60", timeout_s=50))
        await begun(sandbox, "sleep 60")
        await engine.call(lambda api: api.kill(sandbox.container_id))
        result = await running
        assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.RESTARTED, 137, "begun\n")
    else:
        await engine.call(lambda api: api.kill(sandbox.container_id))
        await engine.call(lambda api: api.wait(sandbox.container_id, timeout=10))
    result = await sandbox.shell.run("cat /var/tmp/f; pwd", timeout_s=10)
    assert (shown(result), result.shell_replaced) == ("kept\n/usr\n", when == "idle")
    assert result.restarted == (when == "idle")
    assert await sandbox.read_file("/var/tmp/f", max_bytes=10) == b"kept\n"
    assert (await sandbox.exec(["true"], timeout_s=5)).exit_code == 0


@pytest.mark.parametrize("when", ["idle", "busy", "soft"])
async def test_container_removed_under_us(runtime: DockerRuntime, engine: Engine, when: str) -> None:
    """A lost sandbox would look like a command's output, and the policy would be blamed."""
    sandbox = await runtime.create(spec())
    try:
        await sandbox.shell.run("true", timeout_s=5)
        running = None
        if when == "busy":
            running = asyncio.create_task(sandbox.shell.run("sleep 60", timeout_s=50))
            await begun(sandbox, "sleep 60")
        if when == "soft":
            await sandbox.shell.run("sleep 60", timeout_s=30, soft_timeout_s=0.2)
        await engine.call(lambda api: api.remove_container(sandbox.container_id, force=True))
        if running is not None:
            with pytest.raises(SandboxLost):
                await running
        if when == "soft":
            with pytest.raises(SandboxLost):
                await sandbox.shell.poll(wait_s=2)
        for _ in range(2):
            with pytest.raises(SandboxLost):
                await sandbox.shell.run("echo x", timeout_s=5)
            with pytest.raises(SandboxLost):
                await sandbox.exec(["true"], timeout_s=5)
            with pytest.raises(SandboxLost):
                await sandbox.read_file("/etc/passwd", max_bytes=1 << 20)
    finally:
        await runtime.remove(sandbox.container_id)


@unlike_gvisor("bounds no memory with --ignore-cgroups")
async def test_out_of_memory(runtime: DockerRuntime) -> None:
    """A command that eats all memory would end the session, or pass for one that ran."""
    sandbox = await runtime.create(spec(limits=Limits(memory_mb=80)))
    try:
        await _eat_all_memory(sandbox)
    finally:
        await runtime.remove(sandbox.container_id)


async def _eat_all_memory(sandbox: BashSandbox) -> None:
    await sandbox.shell.run("cd /usr; export KEPT=7", timeout_s=5)
    for command in ("tail /dev/zero", "python3 -c 'x = bytearray(10**9)'", "x=$(tr '\\0' x < /dev/zero)"):
        result = await sandbox.shell.run(command, timeout_s=60)
        assert result.exit_code != 0, command
        if result.outcome is ShellOutcome.RESTARTED:
            assert result.oom_killed
        assert (await say(sandbox, "echo alive $PWD")) == "alive /usr"
