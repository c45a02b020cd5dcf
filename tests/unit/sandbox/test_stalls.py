"""Time limits where something stands still: the server, or what a container's tests put in place of a program."""

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from sandbox_server.errors import SandboxExhausted, SandboxLost, SandboxPaused
from sandbox_server.grading.control import GradingInterrupted, attribute_failures
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.bash import command, exec_channels
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.command import ChannelMode, ChannelProcess, StartedCommand
from sandbox_server.sandbox.bash.exec_channel import ExecChannel
from sandbox_server.sandbox.bash.exec_channels import ExecChannels
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.exec_stream import DockerExecStream, _Stream
from sandbox_server.sandbox.engine import Container
from sandbox_server.sandbox.inspector import ContainerDetails, ContainerInspector
from sandbox_server.sandbox.process import ProcessEnd
from tests.unit.sandbox.test_forged import Recording


def a_grading(stream: _Stream, channels: Recording) -> ChannelProcess:
    """A command with a channel of its own and 0.2 s of time."""
    return ChannelProcess(
        ExecChannel(DockerExecStream(cast(Engine, None), "recorded", stream), "0"),
        StartedCommand("0" * 32, "1", 7, "", ""),
        b"",
        b"",
        ChannelMode(shared=False, reusable=False, pty=False, timeout_s=0.2),
        SandboxClock(),
        channels,
    )


async def test_what_ended_while_the_server_stood_still_was_not_too_slow() -> None:
    """Tests that took a second were `timeout`, 0.0, since the server's host had been suspended for a minute."""
    stream = _Stream(b"")
    killed: list[StartedCommand] = []
    process = a_grading(stream, Recording(killed, []))
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0.05)
    asyncio.get_running_loop().call_soon(stream.eof_received)
    time.sleep(1.5)  # noqa: ASYNC251 - the server stands still
    assert (await waiting, killed) == (ProcessEnd(0), [])


async def test_a_server_that_is_always_late_times_commands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each late look gave a command more time: on a server that is always late its limit never came."""
    monkeypatch.setattr(command, "_LATE_S", 0.05)
    killed: list[StartedCommand] = []
    process = a_grading(_Stream(b""), Recording(killed, []))
    waiting = asyncio.create_task(process.wait())
    try:
        for _ in range(3):
            await asyncio.sleep(0.05)
            assert not killed
            time.sleep(0.4)  # noqa: ASYNC251 - past the limit, then past the extended one
            await asyncio.sleep(0.05)
            if killed:
                return
    finally:
        waiting.cancel()
    pytest.fail("it was never killed")


class Paused(Recording):
    """The engine starts nothing in a container that somebody has paused."""

    async def kill(self, begun: StartedCommand) -> None:
        raise SandboxPaused("the container is paused")


async def test_a_pause_is_no_timeout() -> None:
    """Tests of a container that was frozen past their limit, as for a snapshot of the host, were `timeout`, 0.0."""
    process = a_grading(_Stream(b""), Paused([], []))
    async with asyncio.timeout(20):
        with pytest.raises(SandboxPaused) as raised:
            await process.wait()

    async def inspect(container_id: str) -> ContainerDetails:
        return ContainerDetails("sha256:1", "2026-01-01T00:00:00Z", running=True, oom_killed=False, exit_code=0)

    with pytest.raises(GradingInterrupted) as broken:
        async with attribute_failures(
            cast(ContainerInspector, SimpleNamespace(inspect=inspect)),
            "c",
            image="sha256:1",
            patch=b"x",
            limits=Limits(),
        ):
            raise raised.value
    assert broken.value.outer, "no patch can do that"


class Gone(Recording):
    """A container that died, and whose engine has not ended the command's output, as gVisor's does not always."""

    async def kill(self, begun: StartedCommand) -> None:
        raise SandboxLost("the container is not running")


async def test_a_container_that_died_is_no_timeout() -> None:
    """Tests whose container was killed under them were `timeout`, 0.0."""
    async with asyncio.timeout(20):
        with pytest.raises(SandboxLost):
            await a_grading(_Stream(b""), Gone([], [])).wait()


async def test_a_program_in_place_of_true_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a container is sound is asked of a program that its tests can replace by one that never ends."""
    monkeypatch.setattr(exec_channels, "_ANSWER_S", 0.05)

    async def run(*_: object, **__: object) -> DockerExecStream:
        return DockerExecStream(cast(Engine, None), "recorded", _Stream(b""))

    async def state() -> SimpleNamespace:
        return SimpleNamespace(running=True)

    container = cast(Container, SimpleNamespace(id="c" * 64, exec=run, state=state))
    channels = ExecChannels(container, SandboxClock(), shared=False, login_cache=False)
    async with asyncio.timeout(20):
        with pytest.raises(SandboxExhausted):
            await channels._still_sound()
