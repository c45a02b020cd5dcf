"""The engine's description of its host, in forms that this machine's engine does not use."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server.sandbox.docker.runtime import DockerRuntime

INFO: dict[str, Any] = {
    "ServerVersion": "28.0.1",
    "Driver": "overlay2",
    "DockerRootDir": "/var/lib/docker",
    "NCPU": 2,
    "MemTotal": 1 << 34,
    "SecurityOptions": ["name=seccomp,profile=builtin"],
}


@pytest.mark.parametrize(
    "told", ["2026-11-26T06:40:07.123456789+01:00", "2026-11-26T05:40:07.123456Z", "2026-11-26T00:10:07.123456-05:30"]
)
async def test_the_clock_of_an_engine_in_any_time_zone(told: str) -> None:
    """`doctor` would call every clock outside UTC wrong by hours."""
    engine = SimpleNamespace(call=AsyncMock(return_value=INFO | {"SystemTime": told}))
    runtime: Any = SimpleNamespace(_engine=engine, _fifos=SimpleNamespace(unused=""))
    facts = await DockerRuntime.facts(runtime)
    assert facts.time == datetime(2026, 11, 26, 5, 40, 7, 123456, UTC)
