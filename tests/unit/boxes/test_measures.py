"""Figures of boxes: what is measured, how often, and for how long it is kept."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from sandbox_server.boxes import measures as module
from sandbox_server.boxes.measures import Measures
from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.inspector import Usage


class Engine:
    """Counts CPU time as told, and the questions."""

    def __init__(self) -> None:
        self.now = self.cpu_s = 0.0
        self.asked = self.walked = 0
        self.gone = self.running = False
        self.inspector = self

    async def usage(self, container_id: str) -> Usage:
        if self.gone:
            raise SandboxLost("gone")
        self.asked += 1
        return Usage(self.cpu_s, 70, 30)

    async def inspect(self, container_id: str) -> SimpleNamespace:
        if not self.running:
            raise SandboxLost("gone")
        return SimpleNamespace(running=True)

    async def disk_usage(self, container_id: str) -> dict[str, int]:
        self.walked += 1
        return {container_id: 100 + self.walked}

    def passes(self, seconds: float, cpu_s: float = 0.0) -> None:
        self.now += seconds
        self.cpu_s += cpu_s


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()

    async def sleep(seconds: float) -> None:
        engine.passes(seconds, cpu_s=seconds)  # one CPU

    engine.now = 1000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: engine.now))
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep, Lock=asyncio.Lock))
    return engine


def box(*, paused: bool = False) -> BoxView:
    record, facts = SimpleNamespace(container_id="c"), SimpleNamespace(cpus=2.0)
    return cast(BoxView, SimpleNamespace(sid="7", record=record, box=facts, paused=paused))


async def test_shares_are_of_the_boxes_own_cpus_and_of_the_time_between(engine: Engine) -> None:
    measures = Measures(cast(Runtime, engine))
    assert [one.cpu_pct for one in await measures.now(box())] == [50.0]
    engine.passes(10, cpu_s=5)
    figures = await measures.now(box())
    assert [(one.cpu_pct, one.memory_bytes, one.cache_bytes) for one in figures] == [(50.0, 70, 30), (25.0, 70, 30)]


async def test_who_asks_often_costs_no_more(engine: Engine) -> None:
    """A client that polls keeps the engine busy."""
    measures = Measures(cast(Runtime, engine))
    for _ in range(10):
        await measures.now(box())
        engine.passes(0.4)
    assert (engine.asked, engine.walked) == (2, 1)
    for _ in range(5):
        engine.passes(5)
        await measures.now(box())
    assert (engine.asked, engine.walked) == (7, 1) and len(measures.kept("7")) == 6
    engine.passes(30)
    assert (await measures.now(box()))[-1].disk_bytes == 102


async def test_what_cannot_be_measured_is_what_was(engine: Engine) -> None:
    """A paused box is woken, or one that just ends is a 500."""
    measures = Measures(cast(Runtime, engine))
    assert await measures.now(box(paused=True)) == [] and engine.asked == 0
    kept: Any = await measures.now(box())
    engine.passes(60)
    engine.gone = True
    with capture_logs() as logs:
        assert await measures.now(box()) == kept
    assert not logs
    measures.keep([])
    assert measures.kept("7") == []


async def test_an_engine_without_figures_is_told_once(engine: Engine) -> None:
    """All metrics are empty lists, and nobody is told that it is the host's fault."""
    measures = Measures(cast(Runtime, engine))
    engine.gone = engine.running = True
    with capture_logs() as logs:
        for _ in range(2):
            assert await measures.now(box()) == []
    assert [entry["log_level"] for entry in logs] == ["warning"]
