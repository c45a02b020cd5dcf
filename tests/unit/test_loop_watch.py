"""The event loop watch detects what blocks a loop, without false alarms."""

import asyncio
import resource
import time
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from sandbox_server.app import loop_watch
from sandbox_server.app.loop_watch import _IDLE_PERIOD_S, _PERIOD_S, _Watch, watched_loop


def _seen(cause: str) -> float:
    """Seconds, summed; a stall that follows on a rest seems up to 0.16 s shorter than it was."""
    return REGISTRY.get_sample_value("sandbox_loop_stall_seconds_sum", {"cause": cause}) or 0.0


async def _stalls_during(work: float, block: float) -> tuple[float, float]:
    before = _seen("busy"), _seen("blocked")
    async with watched_loop():
        await asyncio.sleep(0.1)
        until = time.thread_time() + work
        while time.thread_time() < until:
            pass
        time.sleep(block)  # noqa: ASYNC251 - the very thing that is to be seen
        await asyncio.sleep(0.1)
    return _seen("busy") - before[0], _seen("blocked") - before[1]


async def test_a_computation_is_seen_as_busy(capsys: pytest.CaptureFixture[str]) -> None:
    """A slow parser would show only in the clients' latencies."""
    busy, _ = await _stalls_during(0.4, 0)
    assert 0.2 < busy < 0.6
    out, _ = capsys.readouterr()
    assert "event loop stood still" in out and "_stalls_during" in out


async def test_a_stall_is_seen_while_no_file_can_be_opened(capsys: pytest.CaptureFixture[str]) -> None:
    """The watch's thread ended for good at the first stall of a server that had too many open files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with watched_loop():
        await asyncio.sleep(0.1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            until = time.thread_time() + 0.4
            while time.thread_time() < until:
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await asyncio.sleep(0.1)
    out, _ = capsys.readouterr()
    assert "event loop stood still" in out and "no_file_can_be_opened" in out


async def test_a_blocking_call_is_seen_as_blocked() -> None:
    """A synchronous call takes no CPU, and stops every session all the same."""
    busy, blocked = await _stalls_during(0, 0.4)
    assert blocked > 0.2 and busy < 0.05


async def test_an_idle_loop_has_no_stalls() -> None:
    """An alarm that rings by itself is not heard."""
    busy, blocked = await _stalls_during(0, 0)
    assert busy < 0.05 and blocked < 0.15


async def test_a_wait_for_a_cpu_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host each log would be full of stalls that nobody can mend."""
    monkeypatch.setattr(_Watch, "_queued", lambda self: time.monotonic())  # never ran since the last beat
    _, blocked = await _stalls_during(0, 0.4)
    assert blocked < 0.05


async def test_an_idle_loop_is_looked_at_less_often() -> None:
    """Servers without sessions would use 1 % of a core, for ever."""
    watch = _Watch()
    watch.start()
    async with asyncio.timeout(60):
        while watch._period_s < _IDLE_PERIOD_S:  # noqa: ASYNC110 -- the watch has no event for it
            await asyncio.sleep(0.02)
        until = time.thread_time() + 0.2
        while time.thread_time() < until:
            pass
        while watch._period_s > _PERIOD_S:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0)  # busy
    watch.stop()


async def test_the_watch_rests_beside_background_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own beats would be most of what an idle server costs."""
    watch = _Watch()
    watch.start()  # its own beats do not come: this test gives the loop no turn
    now, used = watch._due, watch._cpu_s

    def beats(work_s: float) -> float:
        """The period after 20 beats in time, with so much CPU time between two of them."""
        nonlocal now, used
        for _ in range(20):
            now, used = watch._due, used + work_s
            assert watch._timer is not None
            watch._timer.cancel()
            watch._beat()
        return watch._period_s

    with monkeypatch.context() as patched:
        patched.setattr(loop_watch, "time", SimpleNamespace(monotonic=lambda: now, thread_time=lambda: used))
        patched.setattr(_Watch, "_queued", lambda self: 0.0)
        assert beats(0.0001) == _IDLE_PERIOD_S
        assert beats(0.001) == _IDLE_PERIOD_S, "background loops"
        assert beats(0.003) == _PERIOD_S, "a request"
    watch.stop()
