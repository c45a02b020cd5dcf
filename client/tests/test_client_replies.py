"""Replies: every way that callers take them, and the process they live in."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import subprocess
import sys
import threading
from typing import Any

import pytest
from stand import Fault, Stand

from sandbox_client import SettingsError
from sandbox_client.swedev_utils import call_observation_api, call_postprocess_api, get_api, initialize_runtime


@pytest.fixture
def sid(stand: Stand) -> str:
    return str(initialize_runtime(1)["sid"])


async def test_every_way_to_await(stand: Stand, sid: str) -> None:
    """A caller that treats the reply as the coroutine it once was would fail."""
    expected = {"content": "x"}
    assert await call_observation_api(sid, "x") == expected
    assert await asyncio.gather(call_observation_api(sid, "x"), call_observation_api(sid, "x")) == [expected] * 2
    assert await asyncio.create_task(call_observation_api(sid, "x")) == expected
    assert await asyncio.wait_for(call_observation_api(sid, "x"), 5) == expected
    reply = call_observation_api(sid, "x")
    assert asyncio.iscoroutine(reply)
    assert await reply == await reply == expected
    assert [await each for each in asyncio.as_completed([call_observation_api(sid, "x")])] == [expected]
    index, answer = await initialize_runtime(7, 1)
    assert index == 7 and int(answer["sid"]) > 0


def test_run_without_a_loop(stand: Stand, sid: str) -> None:
    """asyncio.run of the reply itself."""
    assert asyncio.run(call_postprocess_api(sid)) == {}


def test_an_action_that_something_else_has_answered_is_sent_again(stand: Stand, sid: str) -> None:
    """A balancer's 200 passed for an observation without content: the policy saw "Error", and its action never ran."""
    stand.fail("/process_action", Fault(200, b'{"status": "ok"}'), Fault(200))
    assert call_observation_api(sid, "solve")["content"] == "solve"
    assert stand.runs == [(sid, "solve")]


def test_every_way_to_forget_the_await(stand: Stand, sid: str) -> None:
    """A caller that takes the reply for the dict would fail."""
    reply = call_observation_api(sid, "x")
    assert reply["content"] == "x" and reply.get("content") == "x" and reply.get("y", 3) == 3
    assert "content" in reply and "y" not in reply and reply and len(reply) == 1 and list(reply) == ["content"]
    assert dict(reply.value) == {"content": "x"} and "content" in repr(reply)
    assert not call_postprocess_api(sid), "an empty dict is false"


def test_a_pair_unpacks_and_answers_keys(stand: Stand) -> None:
    """G1 and G3 unpack what G4 subscripts."""
    reply = initialize_runtime(3, 1)
    index, answer = reply
    assert index == 3 == reply[0] and reply["sid"] == answer["sid"] == reply[1]["sid"] and "sid" in reply and reply


def test_failure_is_none(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    """The call sites' own error paths rest on the TypeError that a subscripted None raises."""
    reply = initialize_runtime(404)
    assert not reply
    with pytest.raises(TypeError):
        reply["sid"]
    assert tuple(initialize_runtime(5, 404)) == (5, None)
    with pytest.raises(TypeError):
        initialize_runtime(5, 404)["sid"]
    assert "Initializing - API call failed: HTTP 404" in capsys.readouterr().out


def test_what_cannot_be_sent_is_a_failure_too(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    """An exception that upstream never raises would end the batch."""
    assert not call_observation_api("1", object())  # type: ignore[arg-type]  # the mistake under test
    assert "Observation - API call failed: Object of type object" in capsys.readouterr().out


def test_a_tensors_item_is_sent_and_a_sid_as_it_was_given(stand: Stand) -> None:
    """A session is named by a number and by text in turn; the drop-in must not decide which."""

    class Scalar:
        def item(self) -> int:
            return 17

    for given in (Scalar(), 17, "17", None):
        assert call_observation_api(given, "x")
    assert [body["sid"] for body in stand.bodies("/process_action")] == [17, 17, "17", None]


@pytest.mark.filterwarnings("error")
def test_it_is_sent_although_nobody_waits(stand: Stand, sid: str) -> None:
    """G2 forgets its postprocess, and the session would stay until its idle limit."""
    answer = stand.hold("/postprocess")
    call_postprocess_api(sid)
    assert not stand.ended, "the main thread without a loop was blocked until the answer"
    stand.until_seen("/postprocess")
    answer.set()
    initialize_runtime(1)["sid"]
    assert len(stand.bodies("/postprocess")) == 1


async def test_a_running_loop_is_never_blocked_by_the_call(stand: Stand, sid: str) -> None:
    """All other rollouts of the worker would stand still."""
    answer = stand.hold("/postprocess")
    reply = call_postprocess_api(sid)
    assert not stand.ended, "the call returned with the answer, not before it"
    await asyncio.to_thread(stand.until_seen, "/postprocess")
    waiting = asyncio.ensure_future(asyncio.wait_for(reply, 60))
    assert not (await asyncio.wait({waiting}, timeout=0.2))[0], "it was not waited for"
    answer.set()
    await waiting
    assert stand.ended[sid] == 1


async def test_to_thread_returns_when_it_is_done(stand: Stand, sid: str) -> None:
    """G4 takes the return for "postprocessed", and asks for the reward soon after."""
    await asyncio.to_thread(call_postprocess_api, sid)
    assert stand.ended[sid] == 1


async def test_a_cancelled_waiter_does_not_take_the_request_along(stand: Stand, sid: str) -> None:
    """A rollout that is cancelled in its end would leave the session open."""
    answer = stand.hold("/postprocess")
    waiter = asyncio.create_task(call_postprocess_api(sid))
    await asyncio.to_thread(stand.until_seen, "/postprocess")
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    answer.set()
    for _ in range(400):
        if stand.ended[sid]:
            break
        await asyncio.sleep(0.05)
    assert stand.ended[sid] == 1


def test_a_start_goes_on_through_faults(stand: Stand) -> None:
    """One 503 or reset at the start would end the whole batch."""
    stand.fail("/start_instance", Fault(503, b"<html>"), Fault(), Fault(503, b"{}", {"Retry-After": "0"}))
    assert int(initialize_runtime(1)["sid"]) > 0


def test_an_action_runs_once_although_its_answer_was_lost(stand: Stand, sid: str) -> None:
    """The policy's command would run twice."""
    stand.fail("/process_action", Fault(after_work=True))
    assert call_observation_api(sid, "x")["content"] == "x"
    assert stand.runs == [(sid, "x")] and len(stand.bodies("/process_action")) == 2


def test_many_threads_share_one_background(stand: Stand) -> None:
    """A race at the first use would make two loops, and connections that belong to neither."""
    gate, replies = threading.Barrier(16), []

    def start() -> None:
        gate.wait()
        replies.append(initialize_runtime(1)["sid"])

    threads = [threading.Thread(target=start) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(replies)) == 16
    assert [thread.name for thread in threading.enumerate()].count("sandbox-client") == 1


def test_the_chat_wrap_is_a_setting(stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat-trained policy would see the observation as its own turn's text."""
    assert call_observation_api(sid, "x")["content"] == "x"
    monkeypatch.setenv("SANDBOX_CHAT_WRAP", "1")
    wrapped = "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    assert call_observation_api(sid, "x")["content"] == wrapped


def test_addresses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """G3 and the reward manager send to get_api's address themselves, keys and prefix included."""
    monkeypatch.setenv("SANDBOX_URL", "http://x:key@a:5000/, http://b/prefix")
    starts = {get_api("start") for _ in range(200)}
    assert starts == {"http://x:key@a:5000/start_instance", "http://b/prefix/start_instance"}
    paths = [get_api(type=name).rpartition("/")[2] for name in ("action", "postprocess", "reward")]
    assert paths == ["process_action", "postprocess", "compute_reward"]
    with pytest.raises(AssertionError):
        get_api("other")
    for unusable in ("", " , ", "host:5000"):
        monkeypatch.setenv("SANDBOX_URL", unusable)
        caplog.clear()
        with pytest.raises(SettingsError):
            get_api("reward")
        assert caplog.records[0].levelname == "ERROR", "the reward manager swallows the exception and scores 0.0"


def test_the_call_does_not_move_the_trainers_random_source(stand: Stand) -> None:
    """A seeded run would differ by how often the service was asked."""
    state = random.getstate()
    initialize_runtime(1)["sid"]
    get_api("reward")
    assert random.getstate() == state


FORKED = """
import json, os, sys
from sandbox_client.swedev_utils import initialize_runtime
def report(**facts): print(json.dumps(facts), flush=True)
before = initialize_runtime(1)
sid = before["sid"]
pending = initialize_runtime(1)
pid = os.fork()
if pid == 0:
    report(child=initialize_runtime(1)["sid"], inherited=before["sid"])
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
report(parent=initialize_runtime(1)["sid"], pending=pending["sid"])
"""


@pytest.mark.usefixtures("light_torch")
def test_a_forked_child_has_its_own_background(stand: Stand) -> None:
    """Ray's and PyTorch's forks would wait for a thread that is not there, or break the parent's loop."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        facts.update(json.loads(line))
    assert len(set(facts.values())) == 4 and facts.keys() == {"child", "inherited", "parent", "pending"}, facts


def in_another_process(_: int) -> str:
    return str(initialize_runtime(1)["sid"])


def test_a_spawned_child_works(stand: Stand) -> None:
    """A worker that is spawned imports everything anew."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert len(set(pool.map(in_another_process, range(4)))) == 4


@pytest.mark.usefixtures("light_torch")
def test_a_scripts_last_unawaited_request_is_sent(stand: Stand, sid: str) -> None:
    """The interpreter's end would take the request along; nor may it warn or hang."""
    stand.delay_s = 0.3
    script = f"from sandbox_client.swedev_utils import call_postprocess_api as end; end({sid!r})"
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert stand.ended[sid] == 1
