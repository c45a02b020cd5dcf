"""The server, or its Redis, is killed at any point and restarted."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from redis import Redis

from sandbox_server.state.embedded import EmbeddedRedis

from .serving import Server, bash, docker, until

SLOW = "echo 'import time; time.sleep(3)' >> ledger/__init__.py"  # what a grading takes


def quietly(call: Callable[..., object], *arguments: object) -> object:
    """The call's result; None when its server died."""
    with suppress(httpx.TransportError):
        return call(*arguments)
    return None


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_in_the_middle_of_everything(serve: Callable[..., Server], sign: signal.Signals) -> None:
    """A restart loses a session's shell, an action, a patch or a verdict, or leaves a container without owner."""
    server = serve(reaper_period_s=1)
    quiet, acting, ending = (server.begin() for _ in range(3))
    grading = server.begin("samples__ledger-12")  # whose library is another process
    server.run(quiet, "cd /tmp && export KEPT=$((5+6)) && g() { echo g-$((KEPT*2)); } && echo da$((1+1))ta > f.txt")
    server.run(acting, "echo before > before.txt")
    server.run(ending, "echo ending > ending.txt")
    server.run(grading, SLOW)
    with ThreadPoolExecutor(3) as pool:
        server.finish(grading)
        until(lambda: server.containers("role=grade"), 20, "a grading under way")
        acted = pool.submit(quietly, server.run, acting, "sleep 3.5; echo hi-$((3+4)) | tee after.txt")
        until(lambda: server.runs(acting, "sleep 3.5"), what="the action under way")
        started = pool.submit(quietly, server.begin)
        pool.submit(quietly, server.finish, ending)
        time.sleep(0.1)
        server.kill(sign)
        said, sid = acted.result(), started.result()
    server.start()

    assert "\r\n11 g-22 /tmp da2ta[" in server.run(quiet, "echo $KEPT $(g) $(pwd) $(cat f.txt)")
    if sign is signal.SIGTERM:
        assert "hi-7" in said
        assert "interrupted" not in server.run(acting, "echo x") and "\r\nhi-7[" in server.run(acting, "cat after.txt")
    else:
        assert said is None
        assert "[The service was interrupted during the previous action, which" in server.run(acting, "echo x")
        assert "interrupted" not in server.run(acting, "echo x")
    assert server.finish(ending)["state"] == "ended"
    assert b"+++ b/ending.txt" in server.patch(ending)
    for ended in (ending, grading, acting):
        got = server.reward(ended)
        assert (got["verdict"], got["mask"]) == ("unresolved", False), got
    assert b"+++ b/before.txt" in server.patch(acting)
    listed = httpx.get(f"{server.url}/v1/sessions", params={"state": "live"}, timeout=30).json()
    known = {session["sid"] for session in listed}
    assert quiet in known and (sid is None or sid in known)
    until(lambda: len(server.in_use()) == len(known), 20, f"nothing but the containers of {known}")


def test_a_key_outlives_the_server(serve: Callable[..., Server]) -> None:
    """A client that retries over a restart has its action run twice."""
    server = serve()
    sid = server.begin()
    first = server.run(sid, "echo once >> n; wc -l < n", "a")
    server.restart()
    assert server.run(sid, "echo once >> n; wc -l < n", "a") == first
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(quietly, server.run, sid, "echo once >> n; sleep 2", "b")
        until(lambda: docker("exec", server.container(sid), "wc", "-l", "/testbed/n")[0] == "2", 20, "its first half")
        server.kill()
        assert acting.result() is None
    server.start()
    assert "interrupted" in server.run(sid, "echo once >> n; sleep 2", "b")
    assert "\r\n2[Python" in server.run(sid, "wc -l < n")
    assert len(server.actions(sid)) == 3


def test_redis_comes_back_empty(serve: Callable[..., Server]) -> None:
    """The loss of Redis ends live sessions, loses the verdicts of ended ones, or overwrites their journal."""
    server = serve(reaper_period_s=1, journal_flush_s=0.1)
    ended, alive, gone = (server.begin() for _ in range(3))
    server.run(ended, "echo x > x.txt")
    first = server.reward(ended)
    server.run(alive, "cd /tmp; export KEPT=11")
    until(lambda: len(server.actions(alive)) == 1)
    until(lambda: server.in_sql("actions", alive) == 1, what="the action in SQL")
    container = server.container(gone)
    server.kill()
    os.kill(server.redis(), signal.SIGKILL)
    for path in (server.folder / "data" / "redis").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    docker("rm", "-f", container)
    server.start()
    assert "\r\n/tmp 11[" in server.run(alive, "echo $(pwd) $KEPT")
    assert server.reward(ended) == first
    assert server.say(ended, bash("ls"))["error"]["code"] == "session_ended"
    assert server.say(gone, bash("ls"))["error"]["code"] == "sandbox_lost"
    lost = server.reward(gone)
    assert (lost["verdict"], lost["mask"]) == ("infra", True)
    assert server.reward(alive)["verdict"] == "empty_patch"
    until(lambda: len(server.actions(alive)) == 2, 10, "both actions in the journal")
    assert [action["seq"] for action in server.actions(alive)] == [1, 2]
    assert httpx.get(f"{server.url}/v1/sessions", params={"state": "live"}, timeout=30).json() == []


def test_redis_is_emptied_under_a_running_server(serve: Callable[..., Server]) -> None:
    """A Redis without persistence that restarts takes all live sessions with it, and their containers stay."""
    server = serve(reaper_period_s=2, journal_flush_s=0.1)
    sid, other = server.begin(), server.begin()
    server.run(sid, "cd /tmp; echo x > /testbed/x.txt")
    until(lambda: server.in_sql("actions", sid) == 1, what="the action in SQL")
    with Redis(unix_socket_path=str(EmbeddedRedis(server.folder / "data").socket)) as redis:
        redis.flushall()
    told = server.finish(other)
    assert told.get("state") == "ended" or told["error"]["code"] == "state_unavailable"
    until(lambda: "error" not in server.say(sid, bash("pwd")), 20, "the session is back")
    assert "\r\n/tmp[" in server.run(sid, "pwd")
    assert server.reward(sid)["verdict"] == "unresolved"
    assert [action["seq"] for action in server.actions(sid)] == [1, 2, 3]
    until(lambda: server.finish(other).get("state") == "ended", 20, "the other session is back too, and ends")
    until(lambda: server.in_use("role=session") == [], 10, "no container of a session")


def test_redis_stops_for_a_while(serve: Callable[..., Server]) -> None:
    """A pause of Redis hangs the server, silently loses an action, or locks its session for half a minute."""
    server = serve(redis_timeout_s=1, redis_outage_s=0)
    sid = server.begin()
    redis = server.redis()
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(server.say, sid, bash("sleep 4711; echo once >> n"))
        until(lambda: server.runs(sid, "sleep 4711"), what="the action under way")
        os.kill(redis, signal.SIGSTOP)
        try:
            docker("exec", server.container(sid), "pkill", "-x", "sleep")
            broken = server.say(sid, bash("echo never > never"))
            cut = acting.result()
            down = httpx.get(f"{server.url}/readyz", timeout=30)
            alive = httpx.get(f"{server.url}/healthz", timeout=30)
            reward = server.reward(sid)
            start = server.post("/start_instance", {"instance_hash": "samples__ledger-12"})
        finally:
            os.kill(redis, signal.SIGCONT)
    assert broken["error"]["code"] == cut["error"]["code"] == "state_unavailable"
    assert "may have taken effect" in cut["content"]
    assert (down.status_code, alive.status_code, start.status_code) == (503, 200, 503)
    assert (reward["verdict"], reward["mask"]) == ("infra", True)
    began = time.monotonic()
    assert "\r\n1[Python" in server.run(sid, "cat never; wc -l < n")
    assert time.monotonic() - began < 20
    until(lambda: len(server.in_use()) == 1, 30, "no container of the start that failed")
    assert server.reward(sid)["verdict"] == "unresolved"


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_short_absence_of_redis_is_only_a_wait(serve: Callable[..., Server], how: str) -> None:
    """A Redis that restarts, or hangs for some seconds, fails every action of that moment."""
    server = serve(redis_timeout_s=1)
    sid = server.begin()
    redis = server.redis()
    with ThreadPoolExecutor(4) as pool:
        acting = [pool.submit(server.run, sid, f"sleep 0.{n}; echo {n} >> n") for n in range(3)]
        time.sleep(0.2)
        os.kill(redis, signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
        starting = pool.submit(server.begin)
        time.sleep(3)
        if how == "stopped":
            os.kill(redis, signal.SIGCONT)
        assert all("error" not in said.result() for said in acting)
        assert server.session(starting.result())["state"] == "live"
    assert "\r\n3[Python" in server.run(sid, "wc -l < n")
    assert [action["seq"] for action in server.actions(sid)] == [1, 2, 3, 4]


def test_containers_made_ahead_of_a_killed_server(serve: Callable[..., Server]) -> None:
    """After a kill they are unknown and would stay until their deadline."""
    server = serve(reaper_period_s=1, grade_ahead=1)
    sid = server.begin()
    server.run(sid, "echo x > /testbed/x.txt")
    server.say(sid, "<function=finish>\n</function>")
    until(lambda: server.containers("role=grade", f"sid={sid}"), 10, "a grading container ahead of time")
    (orphan,) = server.containers("role=grade")
    server.restart()
    until(lambda: orphan not in server.containers("role=grade"), 20, "the orphan gone")
    assert server.reward(sid)["verdict"] == "unresolved"
    until(lambda: server.in_use() == [], 10, "nothing left")
