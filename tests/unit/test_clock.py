"""The clock of the service, which follows that of Redis."""

import time
from collections.abc import Iterator

import pytest

from sandbox_server import clock


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """ticks[0]: what the monotonic clock says. The service's clock begins at 1,000,000."""
    ticks = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: ticks[0])
    before = clock._at, clock._since, clock._rate
    clock.set_to(1e6)
    yield ticks
    clock._at, clock._since, clock._rate = before


@pytest.mark.parametrize("off_s", [0.5, -0.5, 2.9, -2.9])
def test_a_drift_is_gone_within_a_round(ticks: list[float], off_s: float) -> None:
    """The clocks of nodes came apart until their next start."""
    assert clock.follow(1e6 + off_s) == pytest.approx(off_s)
    assert clock.now() == 1e6, "it does not jump"
    ticks[0] += clock.FOLLOW_S
    assert clock.now() == pytest.approx(1e6 + clock.FOLLOW_S + off_s)
    ticks[0] += 1000  # Redis does not answer: no further than agreed
    assert clock.now() == pytest.approx(1e6 + clock.FOLLOW_S + off_s + 1000)


@pytest.mark.parametrize("off_s", [3600.0, -3600.0])
def test_a_step_is_approached_and_never_goes_back(ticks: list[float], off_s: float) -> None:
    """A clock that is set by an hour would end all sessions at once, or let times that were stored lie ahead."""
    before = clock.now()
    for round_ in range(1, 1500):
        clock.follow(1e6 + off_s + 30.0 * (round_ - 1))
        ticks[0] += 30.0
        assert 26.9 < clock.now() - before < 33.1
        before = clock.now()
    assert clock.now() == pytest.approx(1e6 + off_s + 30.0 * 1499)
