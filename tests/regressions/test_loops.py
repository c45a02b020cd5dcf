"""Each background loop of a real server survives a round with an unexpected exception."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server import clock
from sandbox_server.app import build as building
from sandbox_server.app import state
from sandbox_server.app.build import build
from sandbox_server.app.data_disk import DataDisk
from sandbox_server.boxes.hibernation import BoxHibernation
from sandbox_server.boxes.sleeping import BoxSleep
from sandbox_server.boxes.snapshots import BoxSnapshots
from sandbox_server.errors import OwnedElsewhere
from sandbox_server.fleet.balancer import GradingBalancer
from sandbox_server.fleet.heartbeat import Heartbeat
from sandbox_server.fleet.vitals import Vitals
from sandbox_server.grading.drift import Drift
from sandbox_server.images.engine_disk import EngineDisk
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.pool.metering import Metering
from sandbox_server.pool.pool import Pool
from sandbox_server.records import SessionKind, SessionRecord
from sandbox_server.sandbox.docker.images import Images
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.settings import Settings
from sandbox_server.starts.log import SessionLog
from sandbox_server.state.journal import JournalFlusher
from sandbox_server.state.leases import Leases
from sandbox_server.state.signals import Signals
from sandbox_server.upkeep.disk import REASON, DiskWatch
from sandbox_server.upkeep.reaper import Reaper

ROUNDS: dict[str, tuple[Any, str]] = {
    "images": (Images, "watch"),
    "egress": (DockerRuntime, "watch_egress"),
    "engine": (DockerRuntime, "probe_engine"),
    "heartbeat": (Heartbeat, "beat"),
    "reaper": (Reaper, "sweep_all"),
    "balancer": (GradingBalancer, "look"),
    "session-log": (SessionLog, "write"),
    "pool": (Pool, "park"),
    "lookahead-1": (Lookahead, "prepare"),
    "engine-disk": (EngineDisk, "look"),
    "session-disk": (DiskWatch, "look"),
    "data-disk": (DataDisk, "look"),
    "vitals": (Vitals, "look"),
    "drift": (Drift, "look"),
    "sleep": (Sleeping, "look"),
    "box-hibernation": (BoxHibernation, "look"),
    "box-sleep": (BoxSleep, "tidy"),
    "snapshots": (BoxSnapshots, "tidy"),
    "cpu": (Metering, "look"),
    "cpu-weights": (DockerRuntime, "weigh"),
    "embedded-redis": (state, "_keep"),
    "clock": (state, "_follow"),
    "leases": (Leases, "_renew"),
    "signals": (Signals, "_read"),
    "journal": (JournalFlusher, "flush"),
}
_SAME = {"lookahead-2"}  # another copy of one that is in the list
_WAITING = {"images", "egress", "session-log", "lookahead-1"}
"""Loops whose rounds wait for an event that this test does not cause: their first round breaks."""


async def test_each_loop_of_a_server_survives_a_round_that_breaks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exception in one round switches the disk limit, the pool or the reaper off until the next start."""
    rounds: Counter[str] = Counter()
    seen = {name: asyncio.Event() for name in ROUNDS}
    armed = set(_WAITING)

    def breaking(name: str, work: Any) -> Any:
        async def round_(*arguments: Any, **options: Any) -> Any:
            if name not in armed:
                return await work(*arguments, **options)
            rounds[name] += 1
            if rounds[name] == 1:
                raise RuntimeError(f"{name}: unforeseen")
            seen[name].set()
            return await work(*arguments, **options)

        return round_

    for name, (owner, method) in ROUNDS.items():
        monkeypatch.setattr(owner, method, breaking(name, getattr(owner, method)))
    monkeypatch.setattr(building, "_TIDY_S", 0.2)
    monkeypatch.setattr(building, "_VITALS_S", 0.2)
    monkeypatch.setattr(clock, "FOLLOW_S", 0.2)
    quick = settings.model_copy(
        update={
            "reaper_period_s": 0.2,
            "disk_watch_s": 0.2,
            "disk_period_s": 0.2,
            "node_beat_s": 0.3,
            "breaker_probe_s": 0.2,
            "lock_lease_s": 0.6,
            "drift_check_s": 0.2,
            "hibernate_s": 100.0,
            "run_cpu_s": 1000.0,
            "run_cpu_period_s": 0.2,
        }
    )
    async with build(quick) as parts:
        armed.update(ROUNDS)
        assert parts.loops.names - _SAME == ROUNDS.keys(), "every loop stands in the list above"
        async with asyncio.timeout(120):
            await asyncio.gather(*(again.wait() for again in seen.values()))


async def test_a_session_that_cannot_be_ended_does_not_keep_the_others(settings: Settings) -> None:
    """A session that has moved to another node switches the disk limit off for all sessions of this node."""
    live = [SessionRecord(str(n), "live", "", settings.node_id, f"c{n}", 0.0, 0.0, 0.0) for n in range(3)]
    ended = []

    async def end(sid: str, reason: str) -> None:
        if sid == "0":
            raise OwnedElsewhere("another")
        if sid == "1":
            raise RuntimeError("unforeseen")
        ended.append((sid, reason))

    over = (settings.disk_mb + 1) << 20
    store = SimpleNamespace(live=AsyncMock(return_value=live))
    runtime = SimpleNamespace(disk_usage=AsyncMock(return_value=dict.fromkeys(("c0", "c1", "c2"), over)))
    kinds = {SessionKind.BOX: SimpleNamespace(disk_mb=AsyncMock(return_value=settings.disk_mb))}
    watch = DiskWatch(runtime, store, kinds, end, node=settings.node_id)  # type: ignore[arg-type]
    await watch.look()
    assert ended == [("2", REASON)]
