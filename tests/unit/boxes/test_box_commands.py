"""Commands with an id whose end nobody can tell."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from sandbox_server.boxes.command import CommandLine
from sandbox_server.boxes.commands import BoxCommand
from sandbox_server.boxes.processes import ProcessLimits, Running
from sandbox_server.errors import CommandLost, EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.base import Process, Stream


class Broken:
    """A process whose engine, or container, goes away."""

    pid = 7

    def __init__(self, error: ServiceError) -> None:
        self._error = error

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        yield Stream.STDOUT, b"so far"
        raise self._error


@pytest.mark.parametrize(("error", "told"), [(EngineUnavailable("x"), CommandLost), (SandboxLost("x"), SandboxLost)])
async def test_a_command_that_nobody_follows_is_lost_for_good(error: ServiceError, told: type[ServiceError]) -> None:
    """After a restart of the engine its client asks again and again, as `engine_unavailable` is retryable."""
    running = Running(cast(Process, Broken(error)), CommandLine(["sleep", "9"]), ProcessLimits(), began_at=0.0)
    await running.pump()
    command = BoxCommand("7", "c", running)
    command.over.set()
    with pytest.raises(told):
        await command.wait(0)
