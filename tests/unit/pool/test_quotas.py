"""How much one run may have of a node."""

import time

import pytest

from sandbox_server.errors import OverQuota
from sandbox_server.pool.quotas import Quotas


def test_a_run_holds_no_more_than_it_may() -> None:
    """One trainer with a loop that never ends its sessions would have all slots."""
    quotas = Quotas(sessions=2, starts_per_min=0)
    quotas.begin("a")
    quotas.hold("a")  # of a former server
    with pytest.raises(OverQuota, match="SANDBOX_RUN_SESSIONS") as refused:
        quotas.begin("a")
    assert refused.value.retry_after_s > 0
    quotas.begin("b")
    quotas.release("a")
    quotas.begin("a")
    for _ in range(9):
        quotas.release("b")
    quotas.begin("b")
    quotas.hold("a")  # a restored session is never refused
    quotas.release("a")
    with pytest.raises(OverQuota):
        quotas.begin("a")


def test_a_run_begins_no_more_a_minute_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that end at once hold nothing, and cost the most."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    quotas = Quotas(sessions=0, starts_per_min=2)
    for at in (1000.0, 1030.0):
        now = at
        quotas.begin("a")
        quotas.release("a")
    with pytest.raises(OverQuota, match="SANDBOX_RUN_STARTS_PER_MIN") as refused:
        quotas.begin("a")
    assert refused.value.retry_after_s == 30
    now = 1059.5
    with pytest.raises(OverQuota) as refused:
        quotas.begin("a")
    assert refused.value.retry_after_s == 1, "0 s would mean at once, which is too soon"
    quotas.begin("b")
    now = 1060.0
    quotas.begin("a")
    with pytest.raises(OverQuota):
        quotas.begin("a")


def test_without_settings_nothing_is_refused() -> None:
    """A service of before would refuse."""
    quotas = Quotas(sessions=0, starts_per_min=0)
    for _ in range(10_000):
        quotas.begin("a")


def test_accounts_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the labels: each new one would take memory for as long as the server runs."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr("sandbox_server.pool.quotas._MOST", 10)
    quotas = Quotas(sessions=2, starts_per_min=2)
    for number in range(1000):
        now += 7
        quotas.begin(f"run-{number}")
        quotas.release(f"run-{number}")
    assert not quotas._held and len(quotas._begun) <= 10
