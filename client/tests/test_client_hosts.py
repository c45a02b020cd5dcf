"""Hosts that are bad but not dead: what they cost, and how often."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from bad_hosts import cut_off, dead, frozen
from stand import Stand

from sandbox_client import CallTimedOut, SandboxClient, SettingsError, Timeouts, Unreachable, hosts, transport
from sandbox_client.hosts import MEMORY, Host, HostMemory
from sandbox_client.swedev_utils import call_observation_api, get_api, initialize_runtime
from sandbox_client.transport import Request, Transport

BOUND_S = 3.0  # the stand keeps it on a busy machine too
QUICK = Timeouts(start_attempt_s=BOUND_S, action_attempt_s=BOUND_S, finish_attempt_s=BOUND_S, reward_attempt_s=BOUND_S)


@pytest.mark.parametrize("bad", [frozen, cut_off])
async def test_a_bad_host_costs_one_bound_once(
    stand: Stand, bad: Callable[[], AbstractContextManager[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 of 12 starts failed after their whole bound, and each later action hung again."""
    monkeypatch.setenv("SANDBOX_CONNECT_TIMEOUT_S", str(BOUND_S))
    sent: list[tuple[str, str]] = []  # (host, idempotency key)
    exchange = Transport._exchange

    async def noted(self: Transport, host: Host, request: Request) -> httpx.Response:
        sent.append((host.url, request.idempotency_key))
        return await exchange(self, host, request)

    monkeypatch.setattr(Transport, "_exchange", noted)
    with bad() as url:
        async with SandboxClient([url, stand.url], timeouts=QUICK) as client:
            sids = await asyncio.gather(*(client.start(1) for _ in range(12)))
            first = sent.copy()
            sent.clear()
            for sid in sids:
                assert (await client.act(sid, "ls")).error is None
                await client.finish(sid)
                assert (await client.reward(sid)).verdict == "empty_patch"
    assert len(set(sids)) == 12
    assert any(host == url for host, _ in first), "none of 12 starts began with the bad host"
    assert max(Counter(key for host, key in first if host == url).values()) == 1, "a start asked it twice"
    assert [host for host, _ in sent] == [stand.url] * 36, "calls after it was known"


async def test_a_host_that_froze_is_found_before_the_bound(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may take minutes, so its bound is long; a frozen host would hold it for all of that."""
    monkeypatch.setattr(transport, "_LOOK_AFTER_S", 0.2)
    monkeypatch.setattr(transport, "_LOOK_S", 1.5)
    with frozen() as url:
        async with SandboxClient([url, stand.url], timeouts=Timeouts(start_attempt_s=60)) as client:
            began = time.monotonic()
            await asyncio.gather(*(client.start(1) for _ in range(8)))
            assert time.monotonic() - began < 30


async def test_a_slow_host_that_is_well_is_waited_for(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long action would be sent twice, and its host be taken for bad."""
    monkeypatch.setattr(transport, "_LOOK_AFTER_S", 0.1)
    other = Stand()
    try:
        async with SandboxClient([other.url, stand.url], timeouts=Timeouts(start_attempt_s=60)) as client:
            other.delay_s = stand.delay_s = 0.6
            await client.start(1)
            assert len(other.bodies("/start_instance")) + len(stand.bodies("/start_instance")) == 1
    finally:
        other.close()


async def test_alone_a_frozen_host_ends_at_the_bound() -> None:
    """The caller would hang with it."""
    with frozen() as url:
        began = time.monotonic()
        async with SandboxClient(url, timeouts=Timeouts(action_attempt_s=0.3, retry_s=0.2)) as client:
            with pytest.raises(CallTimedOut, match=r"within 0\.3 s"):
                await client.act("1", "x")
        assert time.monotonic() - began < 20


class _Quiet(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.send_response(503)  # it is well, and full
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


async def test_a_host_that_is_back_is_used_again(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one fault half of the service would stand idle for ever."""
    monkeypatch.setattr(hosts, "FIRST_LOOK_S", 0.1)
    url = dead()
    async with SandboxClient([url, stand.url]) as client:
        while MEMORY.failed_at(url) is None:
            await client.start(1)
        server = HTTPServer(("127.0.0.1", int(url.rpartition(":")[2])), _Quiet)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            for _ in range(100):
                await client.start(1)
                if MEMORY.failed_at(url) is None:
                    break
                await asyncio.sleep(0.05)
            assert MEMORY.failed_at(url) is None
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def test_get_api_and_the_drop_in_share_the_memory(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """What veRL posts by itself would go to a dead host every other time, although the client knew."""
    url = dead()
    monkeypatch.setenv("SANDBOX_URL", f"http://any:key@{url[7:]},{stand.url}")
    while MEMORY.failed_at(url) is None:
        assert initialize_runtime(1)["sid"]
    assert {get_api("action") for _ in range(50)} == {f"{stand.url}/process_action"}
    MEMORY.failed(stand.url)
    assert get_api("reward").startswith(f"http://any:key@{url[7:]}"), "where none is well, the longest ago is tried"


async def test_a_lost_answer_does_not_start_a_second_session(stand: Stand) -> None:
    """Each would hold a slot until it was idle for half an hour."""
    with frozen() as url:
        async with SandboxClient([url, stand.url], timeouts=QUICK) as client:
            for _ in range(3):
                await client.start(1)
    keys = [seen.headers["idempotency-key"] for seen in stand.seen]
    assert len(set(keys)) == 3


def test_the_drop_ins_bounds_are_settings(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service with another SANDBOX_COMMAND_TIMEOUT_S would be given up while it still works."""
    with frozen() as url:
        monkeypatch.setenv("SANDBOX_URL", f"{url},{stand.url}")
        monkeypatch.setenv("SANDBOX_ACTION_ATTEMPT_S", "1")
        began = time.monotonic()
        sid = "1"
        stand.solved[sid] = False
        for _ in range(8):
            assert call_observation_api(sid, "ls")["content"] == "ls"
        assert time.monotonic() - began < 20
    monkeypatch.setenv("SANDBOX_ACTION_ATTEMPT_S", "soon")
    with pytest.raises(SettingsError, match="SANDBOX_ACTION_ATTEMPT_S"):
        call_observation_api(sid, "ls")


def test_looks_at_a_bad_host_are_seldom_and_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rollouts would each ask a host that is down whether it is up."""
    now = [100.0]
    monkeypatch.setattr(hosts.time, "monotonic", lambda: now[0])
    memory = HostMemory()
    assert not memory.claim_look("a"), "nobody asks a host that is well"
    memory.failed("a")
    claimed = []
    for _ in range(1000):
        now[0] += 0.125
        if memory.claim_look("a"):
            claimed.append(now[0] - 100)
        assert not memory.claim_look("a")
    assert claimed == [2.0, 6.0, 14.0, 30.0, 60.0, 90.0, 120.0]


async def test_nobody_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that all failed would never be asked again."""
    monkeypatch.setattr(hosts.DICE, "uniform", min)  # pauses: no attempt begins just before the call's end
    urls = [dead(), dead()]
    for _ in range(2):
        async with SandboxClient(urls, timeouts=Timeouts(start_s=3)) as client:
            with pytest.raises(Unreachable):
                await client.start(1)
