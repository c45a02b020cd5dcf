"""A timeout kills a command with all its children, but not earlier actions' processes; the next command works."""

import asyncio
import contextlib
import secrets
import time

import pytest

from sandbox_server.errors import SandboxExhausted, SandboxPaused
from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine

from .backends import unlike_gvisor
from .specs import gone, running, say, shown, there

IGNORES = 'python3 -c \'import signal as s, time; s.signal(2, s.SIG_IGN); open("/tmp/deaf", "w"); time.sleep(4711)\''
ESCAPES = {
    "plain": "echo partial; sleep 4711",
    "setsid waits": "setsid -w sleep 4711",
    "setsid": "setsid sleep 4711 & sleep 4711",
    "double fork": "(setsid sh -c 'sleep 4711 & sleep 4711 &' &); sleep 4711",
    "env -i": "env -i setsid sleep 4711 & env -i sleep 4711",
    "nohup": "nohup sleep 4711 > /dev/null & nohup sleep 4711 > /dev/null",
    "pipeline": "sleep 4711 | sleep 4711 | cat",
    "stopped": "sleep 4711 & kill -STOP $!; sleep 4711",
    "nested shells": "bash -c 'bash -c \"sleep 4711; :\"; :'",
    "reads stdin": "cat; : 4711",
    "read builtin": "read x; : 4711",
    "python": "python3 -c 'import time; time.sleep(4711)'",
    "yes to nowhere": "yes 4711 > /dev/null",
    "yes": "yes 4711",
    "new session leader with a terminal": "setsid -c sleep 4711 & sleep 4711",
    "busy loop": "while :; do :; done; : 4711",
    "respawns": "while :; do sh -c 'setsid sleep 4711 &'; sleep 0.02; done",
}
BOUNDED = unlike_gvisor("bounds no processes with --ignore-cgroups, so that the host runs out of them")
# takes every PID there is, again and again
FILL = b"""
import os, time
while True:
    try:
        if not os.fork():
            time.sleep(4711)
    except OSError:
        time.sleep(0.01)
"""
STUBBORN = {
    "trap": "trap '' INT TERM HUP; sleep 4711; sleep 4711",
    "python": IGNORES,
    "python twice": f"{IGNORES}; {IGNORES}",
    "disowned": f"setsid nohup {IGNORES} > /dev/null 2>&1 & disown; trap '' INT; wait; sleep 4711",
    "loop": "trap '' INT; while :; do sleep 4711; done",
    "busy": "trap '' INT; while :; do :; done",
    "raw": "stty raw; sleep 4711",
}


async def _survives(sandbox: BashSandbox) -> None:
    assert await gone(sandbox, "4711")
    assert await running(sandbox, "sleep 815") == 1, "what an earlier action began was killed"
    # bash may tell of a job that was killed
    assert (await say(sandbox, "echo alive $KEPT $PWD", timeout_s=5)).splitlines()[0] == "alive 9 /usr"


@pytest.fixture(scope="module")
async def busy(shared: BashSandbox) -> BashSandbox:
    """A shell with a background process of an earlier action."""
    await shared.shell.run("cd /usr; export KEPT=9; sleep 815 &", timeout_s=5)
    return shared


@pytest.mark.parametrize("command", ESCAPES.values(), ids=ESCAPES.keys())
async def test_timeout_leaves_nothing(busy: BashSandbox, command: str) -> None:
    """A process that outlives its action uses the sandbox's CPU and PIDs and disturbs later actions."""
    began = time.monotonic()
    result = await busy.shell.run(command, timeout_s=0.5)
    ends = [(ShellOutcome.INTERRUPTED, 130)]
    if command == ESCAPES["respawns"]:  # bash drops a SIGINT if the program that runs then ends by itself
        ends.append((ShellOutcome.KILLED, 137))
    assert (result.outcome, result.exit_code) in ends
    assert 0.5 <= time.monotonic() - began < 20
    if "partial" in command:
        assert shown(result).startswith("partial\n")
    await _survives(busy)


@pytest.mark.parametrize("command", STUBBORN.values(), ids=STUBBORN.keys())
async def test_what_ignores_sigint_is_killed(
    new_shell: BashSandbox, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that ignores SIGINT would block the shell forever."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    mine = f"9{secrets.randbelow(10**6):06}"  # the sandbox has those of other tests too
    await new_shell.shell.run(f"cd /usr; export KEPT={mine}; sleep {mine} &", timeout_s=5)
    began = time.monotonic()
    result = await new_shell.shell.run(command, timeout_s=0.5)
    assert result.outcome in (ShellOutcome.KILLED, ShellOutcome.INTERRUPTED)
    assert result.exit_code == (137 if result.outcome is ShellOutcome.KILLED else 130)
    assert time.monotonic() - began < 30
    assert await gone(new_shell, "4711")
    assert await say(new_shell, "echo alive $KEPT $PWD", timeout_s=5) == f"alive {mine} /usr"
    if not result.shell_replaced:
        assert await running(new_shell, f"sleep {mine}") == 1


async def test_a_timeout_in_a_sandbox_of_its_first_second(
    sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`0.08` without its point is no number to bash: nothing is killed, and the shell is given up."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.2)
    early = r"printf '0.08 1\n0.00 0.00 0.00 1/1 1\n' >| /run/sandbox/mark"
    result = await sandbox.shell.run(f"{early}; trap '' INT; sleep 4711 & wait", timeout_s=0.5)
    assert not result.shell_replaced and await gone(sandbox, "4711")


async def test_an_action_of_several_commands_is_one(sandbox: BashSandbox) -> None:
    """Background processes of an action's first command would outlive the action's timeout."""
    await sandbox.shell.run("cd /usr; export KEPT=9; sleep 815 &", timeout_s=5)
    await sandbox.shell.run("setsid sleep 4711 &", timeout_s=5)
    await sandbox.shell.run("sleep 4711", timeout_s=0.5, since_mark=False)
    await _survives(sandbox)


@BOUNDED
async def test_fork_storm(sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the PID limit nothing can be started in the container, not even a cleanup."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    await sandbox.shell.run("cd /usr; export KEPT=9; sleep 815 &", timeout_s=5)
    for storm in (
        "for i in $(seq 1 3000); do sleep 4711 & done 2> /dev/null; wait",
        "f() { f | f & }; f 2> /dev/null; sleep 4711",
        "python3 -c 'import os, time\nwhile True:\n  try: os.fork() or (os.setsid(), time.sleep(4711))\n"
        "  except OSError: pass'",
    ):
        result = await sandbox.shell.run(storm, timeout_s=1.5)
        assert result.outcome in (ShellOutcome.INTERRUPTED, ShellOutcome.KILLED)
        await _survives(sandbox)


@BOUNDED
async def test_full_pids_left_in_the_background(sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no process to be had, the service must still answer, and an action's timeout give the sandbox back."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    await sandbox.write_file("/usr/fill.py", FILL)
    full = await sandbox.shell.run("python3 /usr/fill.py &\nsleep 1; echo full", timeout_s=10)
    assert shown(full).endswith("full\n")
    result = await sandbox.shell.run("echo no fork needed", timeout_s=5)
    assert (result.exit_code, shown(result)) == (0, "no fork needed\n")
    for _ in range(8):
        # a process joins the container without a fork in it; but the engine's own threads fork, and may be refused
        with contextlib.suppress(SandboxExhausted):
            once = await sandbox.exec(["bash", "-c", "while :; do :; done", "spins-4712"], timeout_s=0.5)
            assert once.timed_out, once
    result = await sandbox.shell.run("ls /", timeout_s=1)  # bash itself tries to fork for 15 s
    assert result.exit_code != 0
    await sandbox.shell.run("kill -9 -- -$(jobs -p)", timeout_s=2)  # a fork again: it ends at its timeout
    await sandbox.shell.run("kill -9 %1", timeout_s=5)
    result = await sandbox.shell.run("ls / > /dev/null && echo cleared", timeout_s=5)
    assert "cleared" in shown(result)
    assert await gone(sandbox, "spins-4712")


GATE = "until [ -e /tmp/go ]; do sleep 0.05; done"


async def let_end(sandbox: BashSandbox, command: str) -> None:
    """Run `command` past its soft timeout, and then to its end, which nobody has polled yet."""
    result = await sandbox.shell.run(f"{GATE}; touch /tmp/ends; {command}", timeout_s=60, soft_timeout_s=0.1)
    assert result.outcome is ShellOutcome.RUNNING
    await sandbox.exec(["touch", "/tmp/go"], timeout_s=20)
    await there(sandbox, "/tmp/ends")
    await asyncio.sleep(0.3)  # the shell is at its prompt again


async def test_soft_timeout(new_shell: BashSandbox) -> None:
    """Interactive programs could not be used: polled, given input, read to their end."""
    shell = new_shell.shell
    asks = f"echo begin; read -p 'name? ' x; echo \"hello $x\"; {GATE}; echo bye; (exit 4)"
    result = await shell.run(asks, timeout_s=60, soft_timeout_s=2)
    assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.RUNNING, -1, "begin\nname? ")
    assert shell.running
    with pytest.raises(RuntimeError):
        await shell.run("true", timeout_s=1)
    result = await shell.poll(wait_s=0.2)
    assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.RUNNING, -1, "")
    result = await shell.send("wörld 'x'", wait_s=2)
    assert (result.outcome, shown(result)) == (ShellOutcome.RUNNING, "hello wörld 'x'\n")
    await new_shell.exec(["touch", "/tmp/go"], timeout_s=20)
    result = await shell.poll(wait_s=20)
    assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.FINISHED, 4, "bye\n")
    assert not shell.running
    with pytest.raises(RuntimeError):
        await shell.poll(wait_s=1)
    assert await say(new_shell, "echo next") == "next"


async def test_end_between_two_polls_is_told(new_shell: BashSandbox) -> None:
    """Output after the last poll would be lost if the command ends before the next one."""
    await let_end(new_shell, "echo late; (exit 4)")
    assert new_shell.shell.running
    result = await new_shell.shell.poll(wait_s=5)
    assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.FINISHED, 4, "late\n")


async def test_text_for_a_command_that_has_just_ended(new_shell: BashSandbox) -> None:
    """The text would be typed into the bare shell, outside any action."""
    await let_end(new_shell, "echo late")
    result = await new_shell.shell.send("echo typed; (exit 6)", wait_s=5)
    assert (result.outcome, result.exit_code, shown(result)) == (ShellOutcome.FINISHED, 6, "late\ntyped\n")


async def test_interrupt(new_shell: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """ctrl+c would not end a running command, or would count an ended one as interrupted."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    shell = new_shell.shell
    await shell.run("sleep 4711", timeout_s=60, soft_timeout_s=0.2)
    result = await shell.interrupt(wait_s=3)
    assert (result.outcome, result.exit_code) == (ShellOutcome.INTERRUPTED, 130)
    assert "^C" in shown(result) or shown(result) in ("", "\n")
    await shell.run(IGNORES, timeout_s=60, soft_timeout_s=0.3)
    await there(new_shell, "/tmp/deaf")
    result = await shell.interrupt(wait_s=0.5)
    assert (result.outcome, result.exit_code) == (ShellOutcome.KILLED, 137)
    await let_end(new_shell, "(exit 3)")
    result = await shell.interrupt(wait_s=3)
    assert (result.outcome, result.exit_code) == (ShellOutcome.FINISHED, 3)
    assert await gone(new_shell, "4711")
    assert await say(new_shell, "echo next") == "next"


async def test_shell_ends_while_running(new_shell: BashSandbox) -> None:
    """A shell that ends after its soft timeout would be waited for."""
    result = await new_shell.shell.run(f"{GATE}; exit 5", timeout_s=60, soft_timeout_s=0.1)
    assert result.outcome is ShellOutcome.RUNNING
    await new_shell.exec(["touch", "/tmp/go"], timeout_s=20)
    result = await new_shell.shell.poll(wait_s=20)
    assert (result.outcome, result.exit_code) == (ShellOutcome.SHELL_ENDED, 5)
    assert await say(new_shell, "echo next") == "next"


async def test_more_text_than_the_program_reads(sandbox: BashSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that nobody reads fills the terminal; ctrl+c behind it would never arrive."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    await sandbox.shell.run("sleep 4711", timeout_s=60, soft_timeout_s=0.2)
    await sandbox.shell.send("x\n" * 50_000, wait_s=0.2)
    result = await sandbox.shell.interrupt(wait_s=1)
    assert result.outcome is ShellOutcome.RESTARTED
    assert await say(sandbox, "echo next") == "next"


async def test_a_timeout_under_a_freeze_from_outside(new_shell: BashSandbox, engine: Engine) -> None:
    """After an operator's `docker pause` the policy read that its command was too slow, and lost all its processes."""
    await say(new_shell, "left=here; sleep 4711 &")
    acting = asyncio.create_task(new_shell.shell.run("touch /tmp/acts; sleep 2; echo late", timeout_s=4))
    await there(new_shell, "/tmp/acts")
    await engine.call(lambda api: api.pause(new_shell.container_id))
    try:
        with pytest.raises(SandboxPaused, match="docker unpause"):
            await acting
        with pytest.raises(SandboxPaused):
            await say(new_shell, "echo next")
    finally:
        await engine.call(lambda api: api.unpause(new_shell.container_id))
    assert await say(new_shell, "echo $left") == "here"
    assert await running(new_shell, "sleep 4711") == 1
    await say(new_shell, "kill %1")


@pytest.mark.parametrize("after_s", [0.0, 0.2])
async def test_a_cancelled_caller(new_shell: BashSandbox, after_s: float) -> None:
    """A cancelled caller would leave a shell that no other action can use."""
    task = asyncio.create_task(new_shell.shell.run("echo old; sleep 4711", timeout_s=60))
    await asyncio.sleep(after_s)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not new_shell.shell.running
    result = await new_shell.shell.run("echo next", timeout_s=5)
    assert (result.outcome, shown(result)) == (ShellOutcome.FINISHED, "next\n")
    assert await gone(new_shell, "4711")
