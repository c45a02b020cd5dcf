"""Servers with low limits on slots and lifetimes."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx

from .serving import UNREAD, Server, bash, docker, until


def test_no_slot(serve: Callable[..., Server]) -> None:
    """A start over the limit hangs or fails without a reason, or the end of a session does not free its slot."""
    server = serve(max_sessions=1, start_timeout_s=10, reaper_period_s=1)
    sid = server.begin()
    refused = server.post("/start_instance", {"instance_hash": "samples__ledger-12"})
    assert refused.status_code == 503
    assert (refused.json()["code"], refused.json()["reason"], refused.json()["retryable"]) == (
        "no_capacity",
        "slots",
        True,
    )
    assert int(refused.headers["Retry-After"]) > 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.begin)
        until(lambda: 'sandbox_starts_waiting{reason="slots"} 1.0' in httpx.get(f"{server.url}/metrics").text)
        server.finish(sid)
        sid = waiting.result()
    server.restart()  # the live session keeps its slot
    assert "\r\nhi[" in server.run(sid, "echo hi")
    assert server.post("/start_instance", {"instance_hash": "samples__ledger-12"}).json()["reason"] == "slots"
    server.post(
        "/start_instance", {"instance_hash": "samples__absent-1"}
    )  # fails, and must not free a slot that it did not hold
    assert server.post("/start_instance", {"instance_hash": "samples__ledger-12"}).json()["reason"] == "slots"
    server.finish(sid)
    for _ in range(3):
        server.finish(server.begin(UNREAD))


def test_idle_and_absolute_lifetimes(serve: Callable[..., Server]) -> None:
    """An abandoned session never ends, or ends without patch and verdict, or an active one is ended as idle."""
    server = serve(session_idle_s=4, session_max_s=16, reaper_period_s=0.5)
    idle = server.begin()
    server.run(idle, "echo left > left.txt")
    busy = server.begin()  # after it: on a slow host a start takes longer than 4 s
    deadline = time.monotonic() + 60
    while server.session(idle)["state"] != "ended":
        assert time.monotonic() < deadline, "the idle session did not end"
        server.say(busy, bash("echo busy > busy.txt; sleep 0.5"))  # on a slow host it may have ended by its age
    deadline = time.monotonic() + 60
    while "error" not in server.say(busy, bash("sleep 0.3")):  # at once: a wait for a verdict may be longer than 4 s
        assert time.monotonic() < deadline
    until(lambda: server.session(busy)["state"] == "ended", 20, "old session ended")
    assert server.session(busy)["end_reason"] == "max_age"
    assert server.session(idle)["end_reason"] == "idle"
    assert "ended (idle)" in server.say(idle, bash("ls"))["content"]
    assert b"+++ b/left.txt" in server.patch(idle)
    got = server.reward(idle)
    assert (got["verdict"], got["mask"]) == ("unresolved", False)
    assert server.reward(busy)["verdict"] == "unresolved"
    until(lambda: server.in_use("role=session") == [], 10, "no container of a session")


def test_a_reward_is_answered_within_its_bound(serve: Callable[..., Server]) -> None:
    """A reward requested during a long action is answered after the client has given up and recorded 0.0."""
    server = serve(reward_wait_s=1.5, command_timeout_s=100, end_grace_s=60)
    sid = server.begin()
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(server.run, sid, "echo late > late.txt; until [ -e /tmp/go ]; do sleep 0.1; done")
        until(lambda: server.runs(sid, "sleep 0.1"), what="the action under way")
        early = server.reward(sid)
        assert not acting.done(), "it was waited for"
        assert (early["verdict"], early["mask"], early["reward"]) == ("pending", True, 0.0)
        docker("exec", server.container(sid), "touch", "/tmp/go")
        acting.result()
    until(lambda: server.reward(sid)["verdict"] == "unresolved", 30, "the verdict on what the action left")
    assert b"+++ b/late.txt" in server.patch(sid)


def test_a_capture_past_its_bound_is_no_verdict_on_the_policy(serve: Callable[..., Server]) -> None:
    """On a slow host every patch counts as empty and is scored 0.0 without a mask."""
    server = serve(postprocess_timeout_s=0.001)
    sid = server.begin()
    server.run(sid, "echo change > change.txt")
    got = server.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("infra", True, 0.0), got["cause"]
    assert "SANDBOX_POSTPROCESS_TIMEOUT_S" in str(got["cause"])
    assert server.session(sid)["state"] == "lost"
    until(lambda: server.in_use("role=session") == [], 10, "no container of a session")
