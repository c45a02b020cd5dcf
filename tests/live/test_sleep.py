"""Sessions that sleep: without a container and a slot, and as they were when they wake."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.documents import blocks, play

from .reader import shell
from .serving import UNGRADED, UNREAD, Server, bash, editor, engine, serving, until

_REPO = "/workspace/samples__ledger__1.2"
_SLEEPY = {"hibernate_s": 0.6, "reaper_period_s": 0.5, "allow_ungradable": 1}


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for most tests, which parks containers too."""
    with serving(tmp_path_factory.mktemp("sleep"), rows, pool_group=3, max_sessions=2, **_SLEEPY) as server:
        yield server


def asleep(server: Server, *sids: str) -> None:
    """Wait until they sleep."""
    until(lambda: all(server.session(sid)["asleep"] for sid in sids), 10, "asleep")


def test_a_session_is_as_it_was(server: Server) -> None:
    """It loses files, its shell's state, its past or its reward; or it costs something while it sleeps."""
    sid = server.begin()
    server.run(sid, "mkdir -p /tmp/d && cd /tmp/d && date +%N > f && rm -rf /opt && export KEPT=7 && umask 027")
    server.run(sid, "set -o pipefail; shout() { echo \"$1!\"; }; declare -A m=([a]='1 2'); trap 'echo bye' EXIT")
    server.say(sid, editor(command="create", path=f"{_REPO}/n.py", file_text="a = 1\n"))
    server.say(sid, editor(command="str_replace", path=f"{_REPO}/n.py", old_str="1", new_str="2"))
    look = "echo $KEPT ${m[a]} $PWD $(umask) $-; shout x; trap -p; cat f; stat -c '%n %h %a %y' f /opt 2>&1"
    before = _body(server.run(sid, look))
    former = server.session(sid)["container_id"]
    asleep(server, sid)
    shown = server.session(sid)
    assert (shown["state"], shown["container_id"], shown["actions"]) == ("live", "", 5)
    (shows_it,) = blocks("docs/forks.md", "## Sleep")
    play(shows_it, shell(server), {"2071489127163913": sid})
    until(lambda: former not in _ids(server), 20, "its container gone")
    assert _body(server.run(sid, look)) == before
    shown = server.session(sid)
    assert not shown["asleep"] and shown["container_id"] not in ("", former)
    assert "a = 1" in server.say(sid, editor(command="undo_edit", path=f"{_REPO}/n.py"))["content"]
    assert [action["seq"] for action in server.actions(sid)] == list(range(1, 8))
    asleep(server, sid)
    assert server.reward(sid)["verdict"] == "unresolved"  # woken for its patch
    assert b"+++ b/n.py" in server.patch(sid)
    until(lambda: server.session(sid)["container_id"] not in _ids(server), 20, "its last container gone")


def test_more_sessions_than_slots(server: Server) -> None:
    """A sleeping session holds a slot; or the reaper takes the container that it woke in, which another was to have."""
    sids = []
    for number in range(4):  # in two slots
        sids.append(server.begin(UNREAD))
        server.run(sids[-1], f"echo {number} > n; x={number}")
        asleep(server, *sids)
    for _ in range(2):
        for number, sid in enumerate(sids):
            assert f"\r\n{number} {number}[" in server.run(sid, "echo $x $(cat n)")
    for sid in sids:
        server.finish(sid)
    assert not [entry for entry in server.complaints() if entry["level"] == "error"]


def test_where_there_is_no_room(serve: Callable[..., Server]) -> None:
    """A session whose host is full is lost, waits forever, or its action runs twice."""
    server = serve(max_sessions=1, start_timeout_s=15, **_SLEEPY)
    asleep(server, sleeper := server.begin())
    busy = server.begin(UNREAD)
    server.run(busy, "sleep 1000 & x=1")  # so that it does not sleep
    once = bash("echo once >> n; cat n")
    reply = server.say(sleeper, once)
    assert reply["error"]["code"] == "session_restoring" and "no room to wake it" in reply["content"], reply
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.say, sleeper, once)
        server.finish(busy)
        assert "\r\nonce[" in waiting.result()["content"], waiting.result()


@pytest.mark.parametrize("command", ["sleep 1000 & true", "exec 7> /tmp/log", "setsid sleep 1000 > /dev/null 2>&1 &"])
def test_what_runs_stays_awake(server: Server, command: str) -> None:
    """A program of the policy is gone after a pause of the trainer."""
    sid = server.begin(UNREAD)
    server.run(sid, command)
    container, since = server.session(sid)["container_id"], server.log.stat().st_size

    def said() -> list[dict[str, Any]]:
        return [e for e in server.entries(since) if e["event"] == "session does not sleep" and e["sid"] == sid]

    until(said, 10, "an attempt")
    shown = server.session(sid)
    assert not shown["asleep"] and shown["container_id"] == container
    server.finish(sid)


def test_a_sleeper_is_copied_goes_back_and_ends(server: Server) -> None:
    """What is possible with a session is not possible while it sleeps."""
    sid = server.begin(UNGRADED)
    server.run(sid, "x=1; echo 1 > n.txt")
    server.run(sid, "x=2; echo 2 > n.txt")
    asleep(server, sid)
    (copy,) = server.post(f"/v1/sessions/{sid}/fork", {"n": 1}).raise_for_status().json()["sids"]
    assert server.session(sid)["asleep"], "a copy of a sleeping session needs no container of it"
    assert "\r\n2 2[" in server.run(copy, "echo $x $(cat n.txt)")
    server.finish(copy)
    server.post(f"/v1/sessions/{sid}/rollback", {"to": 1}).raise_for_status()
    assert "\r\n1 1[" in server.run(sid, "echo $x $(cat n.txt)")
    asleep(server, sid)
    results = server.post(f"/v1/sessions/{sid}/exec", {"commands": [f"cat {_REPO}/n.txt"]})
    assert results.status_code == 200 and "1" in results.text, results.text
    asleep(server, sid)
    assert httpx.delete(f"{server.url}/v1/sessions/{sid}", timeout=60).is_success
    assert b"+1" in server.patch(sid)


def test_a_sleeper_outlives_the_server_and_redis(serve: Callable[..., Server]) -> None:
    """After a restart it is lost, holds a slot, or wakes as another one."""
    server = serve(max_sessions=1, **_SLEEPY)
    first = server.begin()
    server.run(first, "x=5; date +%N > rolled; cp rolled /tmp/kept")
    asleep(server, first)
    server.restart()
    second = server.begin()
    server.run(second, "x=6; true > rolled")
    asleep(server, first, second)
    server.kill()
    os.kill(server.redis(), signal.SIGKILL)
    for path in (server.folder / "data" / "redis").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    assert "\r\n5 same[" in server.run(first, "cmp rolled /tmp/kept && echo $x same")
    asleep(server, first)
    shutil.rmtree(server.folder / "data" / "checkpoints")
    server.restart()
    assert "\r\n6 0[" in server.run(second, "echo $x $(stat -c %s rolled)"), "by its journal"
    asleep(server, second)
    assert "\r\n5[" in server.run(first, "echo $x")
    for sid in (first, second):
        asleep(server, sid)
        assert server.reward(sid)["verdict"] == "unresolved"
    until(lambda: not server.containers(), 20, "no container left")


def test_a_disk_that_damages_every_checkpoint(serve: Callable[..., Server]) -> None:
    """A sleeper is lost, or no copy can be made, though all its actions are known."""
    server = serve(checkpoint_every=1, **_SLEEPY)
    sid = server.begin()
    for number in range(4):
        server.run(sid, f"x={number}; echo {number} >> /tmp/kept")
    asleep(server, sid)
    server.kill()
    found = list((server.folder / "data" / "checkpoints" / "blocks").glob("*/*"))
    for path in found:
        path.write_bytes(path.read_bytes()[:-3] + b"bad")
    assert len(found) >= 4, "checkpoints that share nothing"
    server.start()
    copies = server.post(f"/v1/sessions/{sid}/fork", {"n": 1})
    assert copies.status_code == 200, copies.text
    for one in (sid, *copies.json()["sids"]):
        assert "\r\n3 4[" in server.run(one, "echo $x $(wc -l < /tmp/kept)")


def _ids(server: Server) -> list[str]:
    label = f"sandbox.node={server.node}"
    return [str(found["Id"]) for found in engine().containers(all=True, filters={"label": label})]


def _body(observation: str) -> str:
    return observation.rsplit("[Current working directory", 1)[0]
