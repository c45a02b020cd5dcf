"""Servers with narrow bounds: slots, lifetimes."""

import threading
import time
from collections.abc import Callable

from .serving import Server, bash, until


def test_no_slot(serve: Callable[..., Server]) -> None:
    """A start past the bound hangs or fails without a reason, or a slot is lost with a session's end."""
    server = serve(max_sessions=1, start_timeout_s=4, reaper_period_s=1)
    sid = server.begin()
    refused = server.post("/start_instance", {"instance_hash": "samples__ledger-12"})
    assert refused.status_code == 503
    assert (refused.json()["code"], refused.json()["reason"], refused.json()["retryable"]) == (
        "no_capacity",
        "slots",
        True,
    )
    assert int(refused.headers["Retry-After"]) > 0
    got: list[str] = []
    waiting = threading.Thread(target=lambda: got.append(server.begin()))
    waiting.start()
    time.sleep(0.5)
    server.finish(sid)
    waiting.join(20)
    server.restart()  # the session that is there keeps its slot
    assert "\r\nhi[" in server.run(got[0], "echo hi")
    assert server.post("/start_instance", {"instance_hash": "samples__ledger-12"}).json()["reason"] == "slots"
    server.post(
        "/start_instance", {"instance_hash": "samples__absent-1"}
    )  # fails, and gives no slot back that it had not
    assert server.post("/start_instance", {"instance_hash": "samples__ledger-12"}).json()["reason"] == "slots"
    server.finish(got[0])
    for _ in range(3):
        server.finish(server.begin())


def test_idle_and_absolute_lifetimes(serve: Callable[..., Server]) -> None:
    """A forgotten session stays for ever, or ends without its patch and verdict, or one in use is ended as idle."""
    server = serve(session_idle_s=3, session_max_s=9, reaper_period_s=0.5)
    idle, busy = server.begin(), server.begin()
    server.run(idle, "echo left > left.txt")
    for number in range(5):
        server.run(busy, f"echo {number} > busy.txt; sleep 1")
    until(lambda: server.session(idle)["state"] == "ended", 20, "idle session ended")
    assert server.session(idle)["end_reason"] == "idle"
    assert "ended (idle)" in server.say(idle, bash("ls"))["content"]
    assert b"+++ b/left.txt" in server.patch(idle)
    got = server.reward(idle)
    assert (got["verdict"], got["mask"]) == ("unresolved", False)
    deadline = time.monotonic() + 15
    while "error" not in server.say(busy, bash("sleep 0.3")):
        assert time.monotonic() < deadline
    until(lambda: server.session(busy)["state"] == "ended", 20, "old session ended")
    assert server.session(busy)["end_reason"] == "max_age"
    assert server.reward(busy)["verdict"] == "unresolved"
    until(lambda: server.in_use("role=session") == [], 10, "no container of a session")


def test_a_reward_is_answered_within_its_bound(serve: Callable[..., Server]) -> None:
    """Asked for during a long action, the answer comes after the client gave up, which then records 0.0."""
    server = serve(reward_wait_s=1.5, command_timeout_s=30)
    sid = server.begin()
    acting = threading.Thread(target=lambda: server.run(sid, "echo late > late.txt; sleep 6"))
    acting.start()
    time.sleep(0.5)
    began = time.monotonic()
    early = server.reward(sid)
    assert time.monotonic() - began < 3
    assert (early["verdict"], early["mask"], early["reward"]) == ("pending", True, 0.0)
    acting.join(20)
    until(lambda: server.reward(sid)["verdict"] == "unresolved", 30, "the verdict on what the action left")
    assert b"+++ b/late.txt" in server.patch(sid)


def test_a_capture_past_its_bound_is_no_verdict_on_the_policy(serve: Callable[..., Server]) -> None:
    """A slow host makes every patch an empty one, scored 0.0 without a mask."""
    server = serve(postprocess_timeout_s=0.001)
    sid = server.begin()
    server.run(sid, "echo change > change.txt")
    got = server.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("infra", True, 0.0), got["cause"]
    assert "SANDBOX_POSTPROCESS_TIMEOUT_S" in str(got["cause"])
    assert server.session(sid)["state"] == "lost"
    until(lambda: server.in_use("role=session") == [], 10, "no container of a session")
