"""Containers that are killed or removed from outside."""

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .serving import Server, bash, docker, until


def test_a_killed_container_is_started_again(live: Server) -> None:
    """A killed container ends its session, although its files still exist."""
    sid = live.begin()
    live.run(sid, "cd /tmp; echo ke$((1+1))pt > f")
    docker("kill", live.container(sid))
    assert "\r\n/tmp ke2pt" in live.run(sid, "echo $(pwd) $(cat /tmp/f)")
    assert live.reward(sid)["verdict"] == "empty_patch"


def test_a_removed_container(live: Server) -> None:
    """A lost sandbox looks like a failed command, or its reward like the policy's failure."""
    idle, acting, unasked = live.begin(), live.begin(), live.begin()
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(live.say, acting, bash("sleep 30"))
        until(lambda: "sleep 30" in docker("top", live.container(acting)), 20, "its command")
        for sid in (idle, acting, unasked):
            docker("rm", "-f", live.container(sid))
        assert cut.result()["error"]["code"] == "sandbox_lost"
    for sid in (idle, acting):
        for _ in range(2):
            reply = live.say(sid, bash("ls"))
            assert reply["error"]["code"] == "sandbox_lost" and "start a new session" in reply["content"]
    until(lambda: live.session(unasked)["state"] == "lost", 20, "seen by the reaper")
    for sid in (idle, acting, unasked):
        assert live.finish(sid)["state"] == "lost"
        first, second = live.reward(sid), live.reward(sid)
        assert (first["verdict"], first["mask"]) == ("infra", True)
        assert first == second and first["receipt"]
        refused = live.patch_refused(sid)
        assert refused["code"] == "no_patch" and "was lost" in refused["detail"]


def test_a_patch_that_sql_has_lost(serve: Callable[..., Server]) -> None:
    """The client is told that the session is live and to end it, for ever; or gets a reward for a patch nobody has."""
    server = serve()
    sid = server.begin()
    assert server.patch_refused(sid, 409)["code"] == "session_live"
    server.finish(sid)
    assert not server.reward(sid)["mask"]
    server.kill()
    with contextlib.closing(sqlite3.connect(server.folder / "data" / "catalogue.sqlite3")) as database, database:
        for table in ("patches", "verdicts"):
            database.execute(f"delete from {table} where sid = ?", (sid,))
    server.start()
    refused = server.patch_refused(sid)
    assert (refused["code"], refused["retryable"]) == ("no_patch", False)
    assert "has ended" in refused["detail"] and "older copy" in refused["detail"]
    reward = server.reward(sid)
    assert reward["mask"] and "gone from SQL" in reward["cause"], reward


def test_a_removed_grading_container(live: Server) -> None:
    """A fault during a grading becomes a verdict on the policy."""
    sid = live.begin()
    live.run(sid, "echo 'import time; time.sleep(4)' >> ledger/__init__.py")
    log_began = live.log.stat().st_size
    live.finish(sid)
    until(lambda: live.containers("role=grade", f"sid={sid}"), 30, "a grading under way")
    (grading,) = live.containers("role=grade", f"sid={sid}")
    docker("rm", "-f", grading)
    got = live.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved", False)
    assert any(entry["level"] == "warning" for entry in live.entries(log_began)), "the fault is nowhere in the log"
