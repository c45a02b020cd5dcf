"""The clock of a container that is frozen for a while."""

import asyncio

import pytest

from sandbox_server.errors import SandboxPaused
from sandbox_server.sandbox.bash.clock import SandboxClock


async def test_it_stands_still_while_frozen() -> None:
    """A pause takes no time from a command's limit; stopping the clock twice adds none."""
    clock = SandboxClock()
    clock.go()
    clock.check()
    clock.stop()
    stood = clock.now()
    await asyncio.sleep(0.05)
    clock.stop()
    assert clock.now() == stood
    with pytest.raises(SandboxPaused):
        clock.check()
    clock.go()
    assert clock.now() - stood < 0.04
    await asyncio.sleep(0.05)
    assert clock.now() - stood >= 0.05
