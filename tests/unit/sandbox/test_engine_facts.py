"""The engine's description of its host, in forms that this machine's engine does not use."""

from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server.cli import doctor
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.settings import Settings

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
    engine = SimpleNamespace(
        product="Docker", url="unix:///var/run/docker.sock", call=AsyncMock(return_value=INFO | {"SystemTime": told})
    )
    runtime: Any = SimpleNamespace(_engine=engine, _fifos=SimpleNamespace(unused=""))
    facts = await DockerRuntime.facts(runtime)
    assert facts.time == datetime(2026, 11, 26, 5, 40, 7, 123456, UTC)


@pytest.mark.parametrize(
    ("name", "refused"), [("runsc", False), ("nosuch", True), ("io.containerd.kata.v2", False), (None, False)]
)
async def test_doctor_knows_the_engines_runtimes(
    monkeypatch: pytest.MonkeyPatch, name: str | None, refused: bool
) -> None:
    """With a misspelled SANDBOX_RUNTIME `doctor` found nothing wrong, and no start succeeded."""
    told = INFO | {"SystemTime": "2026-11-26T05:40:07Z", "Runtimes": {"runc": {}, "runsc": {}}}
    engine = SimpleNamespace(product="Docker", url="unix:///var/run/docker.sock", call=AsyncMock(return_value=told))
    shown: Any = SimpleNamespace(_engine=engine, _fifos=SimpleNamespace(unused=""), list=AsyncMock(return_value=[]))
    shown.facts = partial(DockerRuntime.facts, shown)
    monkeypatch.setattr(doctor, "open_runtime", lambda settings: nullcontext(shown))
    if refused:
        with pytest.raises(doctor._Unwell, match="it has runc, runsc"):
            await doctor._engine(Settings(runtime=name))
    else:
        assert (await doctor._engine(Settings(runtime=name))).startswith(
            "Docker 28.0.1 at unix:///var/run/docker.sock, overlay2"
        )
