"""Rewards on their way to an unchanged reward manager: none that was earned is lost, and what is lost is masked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import ModuleType
from typing import Any

import httpx
import pytest
from bad_hosts import cut_off, dead, frozen
from stand import REWARD_FIELDS, Fault, Stand
from verl_patterns import Scalar, SWEDevRewardManager, bash, generation_2, rewards

from sandbox_client import Reward, swedev_ends, swedev_manager, swedev_utils
from sandbox_client.swedev_posts import route
from sandbox_client.swedev_rewards import masked_rewards

N = 16


@pytest.fixture
def manager() -> type[SWEDevRewardManager]:
    """As the hook leaves it; another class in each test."""
    module = ModuleType(swedev_manager.MODULE)
    module.SWEDevRewardManager = type("SWEDevRewardManager", (SWEDevRewardManager,), {})  # type: ignore[attr-defined]
    swedev_manager.rebind(module)
    hooked: type[SWEDevRewardManager] = module.SWEDevRewardManager
    assert hooked.fetch_reward is not SWEDevRewardManager.fetch_reward
    return hooked


def solved(stand: Stand, n: int = N) -> list[Scalar]:
    sids = [str(1000 + number) for number in range(n)]
    stand.solved.update(dict.fromkeys(sids, True))
    return [Scalar(int(sid)) for sid in sids]


@pytest.mark.parametrize("bad", ["dead", "frozen", "cut_off"])
def test_beside_a_bad_host(
    stand: Stand, manager: type[SWEDevRewardManager], bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7 to 10 of 16 solved rollouts were trained on as 0.0, unmasked."""
    monkeypatch.setenv("SANDBOX_REWARD_ATTEMPT_S", "3")
    monkeypatch.setenv("SANDBOX_CONNECT_TIMEOUT_S", "3")
    with frozen() as frozen_url, cut_off() as cut_off_url:
        url = {"dead": dead(), "frozen": frozen_url, "cut_off": cut_off_url}[bad]
        monkeypatch.setenv("SANDBOX_URL", f"{url},{stand.url}")
        before = masked_rewards()
        began = time.monotonic()
        assert rewards(solved(stand), manager) == [1.0] * N
        assert time.monotonic() - began < 40, "16 rewards, one after the other"
    assert masked_rewards() == before


def test_a_host_that_restarts(manager: type[SWEDevRewardManager], monkeypatch: pytest.MonkeyPatch) -> None:
    """8 of 8 were lost where the only host was away for seconds."""
    url = dead()
    monkeypatch.setenv("SANDBOX_URL", url)
    sids = range(1000, 1008)
    back: list[Stand] = []

    def come_back() -> None:
        time.sleep(1.0)
        back.append(Stand(port=int(url.rpartition(":")[2]), solved=map(str, sids)))

    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        assert rewards([Scalar(sid) for sid in sids], manager) == [1.0] * 8
    finally:
        thread.join()
        back[0].close()


def test_answers_that_are_none(stand: Stand, manager: type[SWEDevRewardManager]) -> None:
    """Resets, 5xx, HTML of a proxy in between, `pending` and a database that was away were each a 0.0."""
    pending = {**REWARD_FIELDS, "reward": 0.0, "verdict": "pending", "mask": True}
    away = {**REWARD_FIELDS, "reward": 0.0, "verdict": "infra", "mask": True, "receipt": ""}
    stand.answer("/compute_reward", pending, away)
    stand.fail("/compute_reward", Fault(), Fault(502, b"<html>"), Fault(503), Fault(504), Fault(after_work=True))
    stand.fail("/compute_reward", Fault(200), Fault(200, b'{"status": "ok"}'), Fault(200, b""))
    before = masked_rewards()
    assert rewards(solved(stand), manager) == [1.0] * N
    assert masked_rewards() == before


def test_an_hour_that_a_proxy_names_is_not_waited_for(
    stand: Stand, manager: type[SWEDevRewardManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first 503 of a balancer that says "in an hour" gave the reward up."""
    monkeypatch.setattr("sandbox_client.transport._LONGEST_PAUSE_S", 0.1)
    stand.fail("/compute_reward", Fault(503, b"<html>", {"Retry-After": "3600"}))
    assert rewards(solved(stand, 1), manager) == [1.0]


def test_a_reward_is_stored_as_json() -> None:
    """Trainers save results as JSON lines."""
    items = [{"fn": "file_f1", "value": 0.5, "weight": 2.0}]
    reward = Reward.from_wire({**REWARD_FIELDS, "reward": 1.0, "verdict": "unresolved", "items": items})
    assert Reward.from_wire(json.loads(json.dumps(reward.to_wire()))) == reward


def test_a_reward_that_is_not_finite_is_masked(stand: Stand, manager: type[SWEDevRewardManager]) -> None:
    stand.answer("/compute_reward", {**REWARD_FIELDS, "reward": float("nan")})
    before = masked_rewards()
    assert rewards(solved(stand, 1), manager) == [0.0]
    assert masked_rewards() != before


def test_what_fails_for_good_is_masked_counted_and_told(
    stand: Stand,
    manager: type[SWEDevRewardManager],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reward that could not be had passed for one that the policy had earned."""
    monkeypatch.setenv("SANDBOX_MASKED_REWARD", "-0.25")
    monkeypatch.setenv("SANDBOX_REWARD_RETRY_S", "0.2")
    before = masked_rewards()
    refused = json.dumps({"code": "malformed_request", "detail": "no such field"}).encode()
    stand.fail("/compute_reward", Fault(422, refused))
    assert rewards([Scalar(1)], manager) == [-0.25]
    stand.answer("/compute_reward", {"reward": None}, {**REWARD_FIELDS, "reward": [1.0]})
    assert rewards([Scalar(1), Scalar(2)], manager) == [-0.25] * 2
    monkeypatch.setenv("SANDBOX_URL", dead())
    assert rewards([Scalar(1)], manager) == [-0.25]
    counted = {code: count - before.get(code, 0) for code, count in masked_rewards().items()}
    assert (counted["malformed_request"], counted["bad_answer"], counted["unreachable"]) == (1, 2, 1)
    assert "no reward of session 1: HTTP 422" in caplog.text and "ConnectError" in caplog.text


def test_a_manager_that_the_hook_did_not_see(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the one line in swedev_utils.py alone every reward but the first would go the old way."""
    module = ModuleType(swedev_manager.MODULE)
    late = type("SWEDevRewardManager", (SWEDevRewardManager,), {})
    module.SWEDevRewardManager = late  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, swedev_manager.MODULE, module)
    sids = solved(stand)
    monkeypatch.setenv("SANDBOX_URL", f"{dead()},{stand.url}")
    assert rewards(sids[:1], late) == [1.0]
    stand.fail("/compute_reward", *[Fault(503)] * 4)
    assert rewards(sids, late) == [1.0] * N


async def test_actions_that_verl_posts_itself(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revisions of 2025-03-06 post by httpx: every fault was an observation for the policy."""
    module = ModuleType("verl.workers.agentic.async_rollout")
    module.httpx = httpx  # type: ignore[attr-defined]
    route(module)
    monkeypatch.setenv("SANDBOX_URL", f"{dead()},{stand.url}")
    stand.solved["7"] = False
    stand.fail("/process_action", Fault(), Fault(503), Fault(after_work=True))
    for number in range(12):
        async with module.httpx.AsyncClient() as client:
            url = swedev_utils.get_api("action")
            answer = await client.post(url, json={"sid": 7, "content": f"a{number}"}, headers={}, timeout=120)
            answer.raise_for_status()
            assert answer.json()["content"] == f"a{number}"
    assert [content for _, content in stand.runs] == [f"a{number}" for number in range(12)], "one ran twice, or not"
    stand.fail("/process_action", Fault(422, b'{"code": "malformed_request", "detail": "x"}'))
    async with module.httpx.AsyncClient() as client:
        with pytest.raises(httpx.HTTPStatusError):
            (await client.post(swedev_utils.get_api("action"), json={"sid": 7, "content": "x"})).raise_for_status()
        assert (await client.get(f"{stand.url}/healthz")).status_code == 200
        # another service's address is none of ours
        assert (await client.post(f"{stand.url}/elsewhere", json={"sid": 0})).status_code == 200
    monkeypatch.setenv("SANDBOX_URL", dead())
    monkeypatch.setenv("SANDBOX_RETRY_S", "0.1")
    async with module.httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.post(swedev_utils.get_api("action"), json={"sid": 7, "content": "x"})


def test_ends_come_before_rewards(stand: Stand) -> None:
    """Generation 2 does not await its ends: a batch was over, and its rewards asked, while they were under way."""
    stand.delay_s = 0.3
    asked: list[tuple[str, int]] = []
    work = stand._work

    def noted(path: str, body: dict[str, Any], headers: Any) -> tuple[int, dict[str, Any]]:
        asked.append((path, sum(stand.ended.values())))
        return work(path, body, headers)

    stand._work = noted  # type: ignore[method-assign]
    sids, _ = generation_2([Scalar(1)] * 4, [bash("solve")])

    async def rewarded() -> list[float]:
        return await asyncio.gather(*(swedev_manager.fetch_reward(None, sid, None) for sid in sids))

    assert asyncio.run(rewarded()) == [1.0] * 4
    assert sorted(stand.ended) == sorted(map(str, sids))
    assert [ended for path, ended in asked if path == "/compute_reward"] == [4] * 4, "a reward came before the ends"
    swedev_ends.wait_for_ends()  # nothing is left to wait for


async def _rollout(started: asyncio.Event, seen: list[Any], then: BaseException | None) -> None:
    sid = (await swedev_utils.initialize_runtime(1))["sid"]
    seen.append(sid)
    started.set()
    await swedev_utils.call_observation_api(sid, "ls")
    if then is not None:
        raise then
    await asyncio.sleep(60)


@pytest.mark.parametrize("how", ["cancelled", "fails", "cancelled while it starts"])
async def test_a_rollout_that_is_cut_off_ends_its_session(stand: Stand, how: str) -> None:
    """Its session kept its slot for half an hour."""
    started, seen = asyncio.Event(), list[Any]()
    if how == "cancelled while it starts":
        answer = stand.hold("/start_instance")
    task = asyncio.create_task(_rollout(started, seen, ValueError("a bug") if how == "fails" else None))
    if how == "cancelled while it starts":
        await asyncio.to_thread(stand.until_seen, "/start_instance")
        task.cancel()
        answer.set()
    elif how == "cancelled":
        await started.wait()
        task.cancel()
    await asyncio.wait({task})
    for _ in range(600):
        if stand.ended:
            break
        await asyncio.sleep(0.05)
    assert sum(stand.ended.values()) == 1
    assert not seen or set(stand.ended) == set(seen)


async def test_a_rollout_that_ends_by_itself_is_left_alone(stand: Stand) -> None:
    """Generation 1 never ends its sessions, and its rewards come later."""

    async def rollout() -> None:
        sid = (await swedev_utils.initialize_runtime(1))["sid"]
        await swedev_utils.call_observation_api(sid, "ls")

    await asyncio.create_task(rollout())
    await asyncio.sleep(0.2)
    assert not stand.bodies("/postprocess")
