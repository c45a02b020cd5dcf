"""When a profile is examined; real shells are in the conformance suite."""

from typing import cast

from sandbox_server.errors import SandboxExhausted
from sandbox_server.sandbox.base import ExecResult, Output
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.exec_channels import ExecChannels
from sandbox_server.sandbox.bash.exec_request import ExecRequest
from sandbox_server.sandbox.bash.logins import Logins
from sandbox_server.sandbox.engine import Container

LOGIN = ExecRequest(["/bin/bash", "-l", "-c", "true"])


async def test_a_look_that_fails_is_not_the_commands_failure() -> None:
    """A failed examination does not fail the command."""
    looks = 0

    async def full(request: ExecRequest) -> ExecResult:
        nonlocal looks
        looks += 1
        raise SandboxExhausted("no further process")

    logins = Logins(full)
    assert [await logins.of(LOGIN) for _ in range(20)] == [None] * 20
    assert looks == 3  # it is not tried for ever


async def test_a_profile_that_is_not_plain_is_looked_at_once() -> None:
    looked: list[ExecRequest] = []

    async def run(request: ExecRequest) -> ExecResult:
        looked.append(request)
        return ExecResult(3, Output(b""), Output(b""), False, 0.1)

    logins = Logins(run)
    for _ in range(20):
        assert await logins.of(LOGIN) is None
        assert await logins.of(ExecRequest(["bash", "-c", "true"])) is None
    assert len(looked) == 1 and looked[0].argv[1] == "--noprofile" and looked[0].timeout_s == 1.0


async def test_it_can_be_turned_off() -> None:
    """A profile wrongly classified as plain can be excluded by a setting."""
    looked = [
        ExecChannels(cast(Container, None), SandboxClock(), shared=True, login_cache=on)._logins for on in (True, False)
    ]
    assert isinstance(looked[0], Logins)
    assert looked[1] is None
