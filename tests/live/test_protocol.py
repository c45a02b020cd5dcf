"""The four calls in any order and spelling, repeated, concurrent, and with clients that disconnect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.waiting import eventually

from .serving import SCRIPTED, UNGRADED, UNREAD, Server, bash, docker, until


@pytest.mark.parametrize("sid", [None, 0, 1, -1, "", "0", "01", " 1", "x", "null", 2**63, 10**30, "9" * 5000])
def test_an_unknown_sid(live: Server, sid: object) -> None:
    """A rollout whose start failed gets an error page that its client cannot read."""
    assert dict(live.say(sid, bash("ls")))["error"]["code"] == "unknown_session"
    assert dict(live.finish(sid))["error"]["code"] == "unknown_session"
    got = live.reward(sid)
    assert (got["verdict"], got["mask"], got["reward"]) == ("unknown_session", True, 0.0)


def test_reward_without_postprocess_and_everything_twice(live: Server) -> None:
    """A client's own order of calls, or its retries, change the outcome."""
    sid = live.begin()
    live.run(sid, "echo x > x.txt")
    first = live.post("/compute_reward", {"sid": int(sid)}, timeout=300)
    assert (first.json()["verdict"], first.json()["mask"]) == ("unresolved", False)
    assert [live.finish(spelling) for spelling in (sid, int(sid))] == [{"sid": sid, "state": "ended"}] * 2
    assert live.post("/compute_reward", {"sid": sid}, timeout=300).content == first.content
    late = live.say(sid, bash("echo never"))
    assert late["error"]["code"] == "session_ended" and "ended (reward)" in late["content"]
    until(lambda: live.containers(f"sid={sid}") == [], what="no container of it is left")
    assert b"+++ b/x.txt" in live.patch(sid)


def test_rewards_and_postprocesses_at_once(live: Server) -> None:
    """Concurrent callers end the session twice, or one of them gets no answer."""
    sid = live.begin()
    live.run(sid, "echo x > x.txt")
    with ThreadPoolExecutor(6) as pool:
        ends = [pool.submit(live.finish, sid) for _ in range(3)]
        rewards = [pool.submit(live.post, "/compute_reward", {"sid": sid}, timeout=300) for _ in range(3)]
        assert [end.result() for end in ends] == [{"sid": sid, "state": "ended"}] * 3
        (only,) = {reward.result().content for reward in rewards}
    assert b'"verdict": "unresolved"' in only


def test_two_actions_at_once(live: Server) -> None:
    """Two actions of one session mix their text in the terminal, or one of them is lost."""
    sid = live.begin(UNREAD)
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda n: live.run(sid, f"sleep 0.5; echo a$(({n}+0))"), (1, 2)))
    assert "\r\na1[" in said[0] and "a2[" not in said[0]
    assert "\r\na2[" in said[1] and "a1[" not in said[1]
    assert len(live.actions(sid)) == 2
    live.finish(sid)


def test_an_action_before_the_end_of_a_postprocess(live: Server) -> None:
    """A postprocess during a running action interrupts it, or reads the tree before the action's last write."""
    sid = live.begin(UNGRADED)
    with ThreadPoolExecutor(2) as pool:
        acting = pool.submit(live.run, sid, "sleep 1.5; echo late > late.txt; echo do$((1+1))ne")
        until(lambda: live.runs(sid, "sleep 1.5"), what="the action under way")
        ended = pool.submit(live.finish, sid)
        assert "do2ne" in acting.result()
        assert ended.result()["state"] == "ended"
    assert b"+++ b/late.txt" in live.patch(sid)


async def _told(server: Server, since: int, event: str) -> bool:
    return any(entry["event"].startswith(event) for entry in server.entries(since))


def test_clients_that_hang_up(serve: Callable[..., Server]) -> None:
    """A disconnected client leaks an unknown session, loses an action or a patch, or stops a grading."""
    live = serve(pool_size=0)  # a start that takes 0.1 s or more
    live.finish(live.begin())
    log_began = live.log.stat().st_size
    known = set(live.in_use())
    given_back = "the client disconnected during its start; "  # cancelled before it had a session, or session closed
    for after_s in (0.04 * 2**n for n in range(8)):  # on a slow machine a request of 0.04 s is not even read
        live.hang_up("/start_instance", {"instance_hash": SCRIPTED}, after_s)
        with suppress(TimeoutError):
            asyncio.run(eventually(lambda: _told(live, log_began, given_back), 3))
            break
    else:
        raise AssertionError("nothing is given back")
    until(lambda: set(live.in_use()) <= known, 60, "its container gone")

    sid = live.begin()
    action = {"sid": sid, "content": bash("sleep 4711; echo kept > kept.txt")}
    live.hang_up("/process_action", action, 0, lambda: live.runs(sid, "sleep 4711"))
    docker("exec", live.container(sid), "pkill", "-x", "sleep")
    assert "kept" in live.run(sid, "cat kept.txt")
    assert [action["seq"] for action in live.actions(sid)] == [1, 2]
    live.hang_up("/postprocess", {"sid": sid}, 0.02, lambda: live.session(sid)["state"] != "live")
    until(lambda: live.session(sid)["state"] == "ended", 60, "ended all the same")
    live.hang_up("/compute_reward", {"sid": sid}, 0.02)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved", False)
    assert b"+++ b/kept.txt" in live.patch(sid)

    other = live.begin()
    live.run(other, "echo x > x.txt")
    live.hang_up("/compute_reward", {"sid": other}, 0.05, lambda: live.session(other)["state"] != "live")
    until(lambda: live.session(other)["state"] == "ended", 60, "ended all the same")
    assert live.reward(other)["verdict"] == "unresolved"
    assert live.complaints(log_began) == []


def test_an_idempotency_key_runs_once(live: Server) -> None:
    """A retried action runs twice."""
    sid = live.begin(UNREAD)
    with ThreadPoolExecutor(2) as pool:
        said = set(pool.map(lambda _: live.run(sid, "sleep 0.3; echo once >> n; wc -l < n", "key-1"), range(2)))
    assert len(said) == 1 and "\r\n1[Python" in said.pop()
    assert "\r\n2[Python" in live.run(sid, "sleep 0.3; echo once >> n; wc -l < n", "key-2")
    other = {"sid": sid, "content": bash("echo another")}
    refused = live.post("/process_action", other, headers={"Idempotency-Key": "key-2"})
    assert (refused.status_code, refused.json()["code"]) == (422, "malformed_request"), "another action's observation"
    assert len(live.actions(sid)) == 2
    live.finish(sid)


def test_starts_that_are_refused(live: Server) -> None:
    """A start that can never succeed is answered as retryable, or not at all."""
    absent = live.post("/start_instance", {"instance_hash": "samples__absent-1"})
    assert (absent.status_code, absent.json()["code"]) == (503, "image_unavailable")
    assert "sandbox-samples/absent:latest" in absent.json()["detail"]
    bare = live.post("/start_instance", {"instance_hash": "samples__bare-1"})
    assert (bare.status_code, bare.json()["code"]) == (503, "image_unavailable")
    assert "/opt is not a git repository" in bare.json()["detail"]
    unknown = live.post("/start_instance", {"instance_hash": 7})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_instance")
