"""The typed client against a real HTTP server that fails on order."""

from __future__ import annotations

import json
import logging
import math
import socket
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import pytest
from stand import REWARD_FIELDS, Fault, Stand

from sandbox_client import (
    BadAnswer,
    CallTimedOut,
    NoCapacity,
    SandboxClient,
    ServiceFault,
    SettingsError,
    Timeouts,
    Unauthorized,
    UnknownInstance,
    Unreachable,
    instance_hash,
)
from sandbox_client.hosts import DICE
from sandbox_client.transport import _retry_after_s

FULL = Fault(503, json.dumps({"code": "no_capacity", "detail": "no slots", "retryable": True}).encode())
OVER = Fault(429, json.dumps({"code": "over_quota", "detail": "enough", "retryable": True}).encode())
RESET = Fault()


@pytest.fixture
async def client(stand: Stand) -> AsyncIterator[SandboxClient]:
    async with SandboxClient(stand.url, timeouts=Timeouts(start_s=5, action_s=5, retry_s=3)) as client:
        yield client


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_rollout(client: SandboxClient, stand: Stand) -> None:
    """The four endpoints, as a user writes them, would not fit together."""
    async with client.session("django__django-11099") as session:
        seen = await session.act("echo $((20+22)) && solve")
        assert seen.content == "echo 42 && solve" and seen.error is None
        await session.finish()
        reward = await session.reward()
    assert (reward.reward, reward.verdict, reward.mask, reward.f2p_count, reward.receipt) == (
        1.0, "resolved", False, 2, "r-1",
    )  # fmt: skip
    assert stand.bodies("/start_instance") == [{"instance_hash": 1922554310125897704}]
    assert stand.ended[session.sid] == 1, "finishing twice sent a second request"
    assert await client.healthy()


@pytest.mark.parametrize("instance", ["astropy__astropy-12907", 1735636947331729184, "1735636947331729184"])
async def test_ids_and_hashes_name_the_same_instance(client: SandboxClient, stand: Stand, instance: str | int) -> None:
    """A hash taken for an id would be hashed again."""
    await client.start(instance)
    assert stand.bodies("/start_instance") == [{"instance_hash": instance_hash("astropy__astropy-12907")}]


async def test_a_session_is_finished_when_its_body_raises(client: SandboxClient, stand: Stand) -> None:
    """A rollout that fails would leave its container until the idle limit."""
    with pytest.raises(ZeroDivisionError):
        async with client.session(1) as session:
            _ = 1 / 0
    assert stand.ended[session.sid] == 1


async def test_the_bodys_exception_survives_a_failed_finish(client: SandboxClient, stand: Stand) -> None:
    """The failure to clean up would hide what went wrong."""
    stand.fail("/postprocess", Fault(500, b'{"code": "new_fault", "detail": "x"}'))
    with pytest.raises(ZeroDivisionError):
        async with client.session(1):
            _ = 1 / 0


@pytest.mark.parametrize("fault", [RESET, FULL, Fault(502, b"<html>"), Fault(504, b""), Fault(after_work=True)])
async def test_an_action_is_sent_again_and_runs_once(client: SandboxClient, stand: Stand, fault: Fault) -> None:
    """A fault on the way would run the policy's command twice, or lose it."""
    sid = await client.start(1)
    stand.fail("/process_action", fault)
    assert (await client.act(sid, "step")).content == "step"
    assert (await client.act(sid, "step")).content == "step"
    keys = [seen.headers["idempotency-key"] for seen in stand.seen if seen.path == "/process_action"]
    assert len(keys) == 3 and keys[0] == keys[1] != keys[2], keys
    assert stand.runs == [(sid, "step")] * 2


@pytest.mark.parametrize("fault", [FULL, OVER], ids=["full", "over its quota"])
async def test_retry_after_is_honoured(client: SandboxClient, stand: Stand, fault: Fault) -> None:
    """A full service would be asked again before the time that it named."""
    stand.fail("/start_instance", Fault(fault.status, fault.body, {"Retry-After": "0.9"}))
    began = time.monotonic()
    await client.start(1)
    assert 0.9 <= time.monotonic() - began < 30


async def test_retries_end(stand: Stand) -> None:
    """A service that stays full would hold its caller past the bound."""
    stand.fail("/process_action", *[FULL] * 99)
    async with SandboxClient(stand.url, timeouts=Timeouts(retry_s=2.0)) as client:
        began = time.monotonic()
        with pytest.raises(NoCapacity) as caught:
            await client.act("1", "x")
    assert time.monotonic() - began < 30
    assert caught.value.code == "no_capacity" and caught.value.status == 503 and caught.value.detail == "no slots"
    assert 2 <= len(stand.seen) <= 6


def test_retry_after_may_be_a_date() -> None:
    """A balancer that sends one would be asked again at once, or never."""
    asked = [format_datetime(datetime.now(timezone.utc) + timedelta(seconds=in_s)) for in_s in (30, -30)]
    waits = [_retry_after_s(httpx.Response(503, headers={"Retry-After": at})) for at in (*asked, "1.5", "-1", "soon")]
    assert 25 < waits[0] <= 30 and waits[1:] == [0.0, 1.5, 0.0, 0.0]


def test_a_run_that_the_service_would_refuse_is_refused_here() -> None:
    """Each start of the batch fails, after the trainer has loaded its model."""
    for run in ("two words", "x" * 101, "a\nb"):
        with pytest.raises(SettingsError, match="run's name"):
            SandboxClient("http://127.0.0.1:1", run=run)


async def test_a_retry_after_past_the_bound_is_not_waited_for(client: SandboxClient, stand: Stand) -> None:
    """The caller would sleep for nothing."""
    stand.fail("/start_instance", Fault(503, FULL.body, {"Retry-After": "3600"}))
    began = time.monotonic()
    with pytest.raises(NoCapacity):
        await client.start(1)
    assert time.monotonic() - began < 20


async def test_errors_have_the_type_of_their_code(client: SandboxClient, stand: Stand) -> None:
    """A caller could not tell a wrong instance from a fault of the service."""
    with pytest.raises(UnknownInstance, match="no such instance"):
        await client.start(404)
    stand.fail("/start_instance", Fault(500, b'{"code": "new_fault", "detail": "x"}'), Fault(200, b"{}"))
    with pytest.raises(ServiceFault) as caught:
        await client.start(1)
    assert caught.value.code == "new_fault"
    with pytest.raises(BadAnswer):
        await client.start(1)
    final = Fault(503, b'{"code": "sandbox_lost", "detail": "x", "retryable": false}')
    stand.fail("/process_action", final)
    with pytest.raises(ServiceFault):
        await client.act("1", "x")
    assert len(stand.bodies("/process_action")) == 1, "what the service calls final was sent again"


async def test_what_a_proxy_answers_is_no_answer(client: SandboxClient, stand: Stand) -> None:
    """A page, or the first half of an answer, under a success or a 500, costs a solved rollout its reward."""
    broken = [Fault(200, b"<html>"), Fault(200, b'{"reward": 1.0, "verd'), Fault(500, b"<html>"), Fault(520, b"")]
    broken.append(Fault(200, b'{"status": "ok"}'))
    async with client.session(1) as session:
        stand.fail("/process_action", broken[-1])
        await session.act("solve")
    stand.fail("/compute_reward", *broken)
    assert (await session.reward()).reward == 1.0
    assert len(stand.bodies("/compute_reward")) == len(broken) + 1


NO_REASON = Fault(408, b"<html>")
SLOW = Fault(408, json.dumps({"code": "body_too_slow", "detail": "x", "retryable": True}).encode())
LIMITED = Fault(429, b"<html>")
NUMBERED = Fault(500, b'{"kind": "Status", "code": 500, "message": "x"}')


@pytest.mark.parametrize("fault", [NO_REASON, SLOW, LIMITED, NUMBERED], ids=["408", "too slow", "429", "numbered"])
async def test_what_may_be_sent_again_is(client: SandboxClient, stand: Stand, fault: Fault) -> None:
    """What the service calls retryable, or a proxy says of itself, cost a solved rollout its action or its reward."""
    stand.fail("/start_instance", fault)
    sid = await client.start(1)
    stand.fail("/process_action", fault)
    assert (await client.act(sid, "solve")).content == "solve"
    stand.fail("/compute_reward", fault)
    assert (await client.reward(sid)).reward == 1.0


async def test_a_lost_sandbox_is_an_observation_with_an_error(client: SandboxClient, stand: Stand) -> None:
    """The service's own text would pass for the sandbox's output."""
    seen = await client.act("17", "ls")
    assert seen.error is not None and seen.error.code == "unknown_session" and seen.content.startswith("ERROR")


async def test_a_slow_answer_ends_at_the_bound(stand: Stand) -> None:
    """A hung service would hang its caller."""
    stand.delay_s = 5.0
    async with SandboxClient(stand.url, timeouts=Timeouts(action_s=0.3)) as client:
        with pytest.raises(CallTimedOut):
            await client.act("1", "x")
    stand.fail("/process_action", Fault(502))
    async with SandboxClient(stand.url, timeouts=Timeouts(action_s=4)) as client:
        with pytest.raises(CallTimedOut, match="the attempt before: HTTP 502"):
            await client.act("1", "x")


async def test_pending_is_asked_again_and_bounded(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that needs longer than one request would be lost, or waited for without end."""
    monkeypatch.setattr("sandbox_client.client._PENDING_PAUSE_S", 0.05)
    pending = {**REWARD_FIELDS, "reward": 0.0, "verdict": "pending", "mask": True}
    async with SandboxClient(stand.url, timeouts=Timeouts(reward_total_s=3)) as client:
        sid = await client.start(1)
        stand.answer("/compute_reward", pending, pending)
        assert (await client.reward(sid)).verdict == "empty_patch"
        stand.answer("/compute_reward", *[pending] * 99)
        assert (await client.reward(sid)).mask is True


@pytest.mark.parametrize(
    "broken", [{"mask": None}, {"reward": "1.0"}, {"reward": math.nan}, {"f2p_count": True}, {"verdict": None}]
)
async def test_a_reward_answer_with_a_broken_field_is_refused(
    client: SandboxClient, stand: Stand, broken: dict[str, object]
) -> None:
    """A missing mask would count as a real 0.0."""
    stand.answer("/compute_reward", {**REWARD_FIELDS, "reward": 0, "verdict": "unresolved", **broken})
    with pytest.raises(BadAnswer, match=next(iter(broken))):
        await client.reward("1")


async def test_other_hosts_take_over(stand: Stand) -> None:
    """One dead replica of three would fail a third of the calls."""
    urls = [f"http://127.0.0.1:{closed_port()}", stand.url, f"http://127.0.0.1:{closed_port()}"]
    async with SandboxClient(urls) as client:
        began = time.monotonic()
        sids = [await client.start(1) for _ in range(10)]
        assert time.monotonic() - began < 20
        assert await client.healthy()
    assert len(set(sids)) == 10


async def test_a_full_host_sends_the_start_to_another(stand: Stand) -> None:
    """A start would wait for the full host's Retry-After although another is free."""
    full = Stand()
    full.fail("/start_instance", *[Fault(503, FULL.body, {"Retry-After": "30"})] * 99)
    try:
        async with SandboxClient([full.url, stand.url]) as client:
            began = time.monotonic()
            for _ in range(20):
                await client.start(1)
            assert time.monotonic() - began < 25
    finally:
        full.close()
    assert full.seen, "none of 20 calls began with the full host"


async def test_nobody_there(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is away would raise something that callers do not catch, after minutes without a word."""
    monkeypatch.setattr(DICE, "uniform", min)  # attempts after 0, 0.2, 0.6 and 1.4 s
    url = f"http://someone:hush-hush@127.0.0.1:{closed_port()}"
    async with SandboxClient(url, timeouts=Timeouts(start_s=2.5)) as client:
        with pytest.raises(Unreachable) as caught:
            await client.start(1)
        assert not await client.healthy()
    assert "hush" not in f"{caught.value!r} {caught.value} {caplog.text}"
    (logged,) = [one.getMessage() for one in caplog.records if one.name == "sandbox_client.transport"]
    assert "/start_instance" in logged and logged.endswith("tried again, this one for up to 2.5 s")


@pytest.mark.parametrize("how", ["bearer", "basic"])
async def test_keys_and_a_path_prefix(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A key would not arrive, or would show in a log."""
    caplog.set_level(logging.DEBUG)
    stand = Stand(prefix="/rl/sandbox")
    stand.key = "aHVzaC1odXNo" if how == "bearer" else "eDpodXNoOmh1c2g="  # the latter: x:hush:hush
    url = stand.url + "/" if how == "bearer" else stand.url.replace("//", "//x:hush%3Ahush@") + "/"
    try:
        async with SandboxClient(url, api_key=stand.key if how == "bearer" else None) as client:
            sid = await client.start(1)
            assert (await client.act(sid, "x")).content == "x"
            stand.key = "another"
            with pytest.raises(Unauthorized) as caught:
                await client.act(sid, "x")
            assert await client.healthy()
            shown = f"{client.__dict__} {client._transport.__dict__} {caught.value!r} {caplog.text}"
    finally:
        stand.close()
    assert "hush" not in shown and "aHVz" not in shown and "eDpo" not in shown
    assert stand.seen[0].path == "/start_instance"


@pytest.mark.parametrize("url", ["", "ftp://x:hush@host", "http://", "x:hush@host:5000", "http://x:hush@host:port"])
def test_a_bad_base_url_is_refused_without_showing_it(url: str) -> None:
    """A mistyped URL would fail late, or print the key in it."""
    with pytest.raises(SettingsError) as caught:
        SandboxClient(url)
    assert "hush" not in str(caught.value)


async def test_a_lone_surrogate_travels(client: SandboxClient, stand: Stand) -> None:
    """Odd text from a tokenizer would raise in the client."""
    sid = await client.start(1)
    assert (await client.act(sid, "a\ud800\x00b")).content == "a\ud800\x00b"
