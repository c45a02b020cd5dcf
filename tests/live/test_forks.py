"""Copies of sessions: from their last action or an earlier one, live or ended, as good as the original."""

import importlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT

from .serving import CALLED, OCI_RUNTIME, UNGRADED, UNREAD, Server, bash, docker, editor, serving, until

FILE = "/workspace/samples__ledger__1.2/n.py"


@pytest.fixture(scope="module")
def server(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all copies."""
    # (gVisor takes ten times as long for the calls that walk a tree)
    bounds = {"checkpoints_mb": 64, "checkpoint_timeout_s": 120 if OCI_RUNTIME else 10, "command_timeout_s": 25}
    with serving(tmp_path_factory.mktemp("forks"), rows, pool_group=4, allow_ungradable=1, **bounds) as server:
        yield server


def fork(server: Server, sid: str, n: int = 1, at: int | None = None) -> list[str]:
    """The sids of n copies."""
    answer = server.post(f"/v1/sessions/{sid}/fork", {"n": n} | ({} if at is None else {"at": at}))
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["failed"] == [], told
    assert len(set(told["sids"])) == n
    return list(told["sids"])


def test_copies_go_on_where_the_original_is(server: Server) -> None:
    """A copy lacks a file, a variable or the past; or two sessions share a container."""
    sid = server.begin()
    server.run(
        sid, "mkdir -p /tmp/d && cd /tmp/d && echo one > f && ln f hard && rm -rf /opt && declare -A m=([a]='1 2')"
    )
    server.run(
        sid,
        "export KEPT=7; shout() { echo \"$1!\"; }; alias ll='ls -l'; set -o pipefail; umask 027; trap 'echo bye' EXIT",
    )
    server.say(sid, editor(command="create", path="/workspace/samples__ledger__1.2/n.py", file_text="a = 1\n"))
    server.say(
        sid, editor(command="str_replace", path="/workspace/samples__ledger__1.2/n.py", old_str="1", new_str="2")
    )
    server.run(sid, "false")
    key = {"Idempotency-Key": "once"}
    first, second = server.post(f"/v1/sessions/{sid}/fork", {"n": 2}, headers=key).json()["sids"]
    again = server.post(f"/v1/sessions/{sid}/fork", {"n": 2}, headers=key)
    assert again.json() == {"sids": [first, second], "failed": []}
    look = "echo $? $KEPT ${m[a]} $PWD $(umask) $-; shout x; alias ll; trap -p; stat -c '%n %h %a %y' f hard /opt 2>&1"
    seen = [server.run(one, look).rsplit("[Current working directory", 1)[0] for one in (sid, first, second)]
    assert seen[0] == seen[1] == seen[2] and "\r\n1 7 1 2 /tmp/d 0027" in seen[0], seen
    server.run(first, "echo first > f")
    assert "one" in server.run(second, "cat f") and "one" in server.run(sid, "cat hard")
    undo = editor(command="undo_edit", path=FILE)
    assert [server.say(one, undo)["content"] for one in (sid, first)].count(server.say(second, undo)["content"]) == 2
    for one in (first, second):
        shown = server.session(one)
        assert (shown["parent"], shown["forked_at"], shown["run"]) == (sid, 5, server.session(sid)["run"])
        journal = server.actions(one)
        assert [action["content"] for action in journal[:5]] == [a["content"] for a in server.actions(sid)[:5]]
        assert [action["seq"] for action in journal] == list(range(1, len(journal) + 1))


def test_each_copy_is_graded_for_itself(server: Server) -> None:
    """A copy's patch lacks what its original had done, or its reward is another's."""
    sid = server.begin()
    server.run(sid, "echo x > both.txt")
    (copy,) = fork(server, sid)
    server.run(copy, "echo y > mine.txt")
    graded = server.reward(copy)
    assert graded["verdict"] == "unresolved"
    receipt = server.get(f"/v1/receipts/{graded['receipt']}")
    assert (receipt["parent"], receipt["forked_at"]) == (sid, 1)
    assert b"+++ b/both.txt" in server.patch(copy) and b"+++ b/mine.txt" in server.patch(copy)
    server.finish(sid)
    assert b"mine.txt" not in server.patch(sid)
    family = {one["sid"]: one for one in _tree(server, sid)}
    assert family[copy]["parent"] == sid and family[copy]["verdict"] == "unresolved" and family[sid]["parent"] == ""
    until(lambda: server.in_sql("actions", copy) == 2, what="the copy's whole journal in SQL")


def test_from_an_earlier_action_and_from_the_end(server: Server) -> None:
    """A copy has what came after its action; or an ended session cannot be copied."""
    sid = server.begin(UNGRADED)
    for number in (1, 2, 3):
        server.run(sid, f"echo {number} >> n; x{number}={number}; date +%N > rolled-{number}")
    assert "\r\n1 2[" in server.run(fork(server, sid, at=2)[0], "echo $x1 $x2 $x3")
    server.finish(sid)
    late, twin = fork(server, sid, 2)
    assert "\r\n1 2 3[" in server.run(late, "echo $x1 $x2 $x3") and server.session(late)["forked_at"] == 3
    assert _last(server, late, "cat rolled-3") == _last(server, twin, "cat rolled-3"), "the actions ran once for both"
    (fresh,) = fork(server, sid, at=0)
    assert "No such file" in server.run(fresh, "cat n") and len(server.actions(fresh)) == 1
    (grandchild,) = fork(server, late, at=3)
    assert _last(server, grandchild, "cat rolled-3") == _last(server, late, "cat rolled-3"), (
        "by the checkpoint of its parent"
    )
    group = server.post("/v1/groups", {"from": sid, "at": 1, "n": 2}).raise_for_status().json()
    assert [server.session(one)["forked_at"] for one in group["sids"]] == [1, 1] and group["failed"] == []
    assert {one["sid"] for one in _tree(server, grandchild)} >= {sid, late, twin, fresh, grandchild}


async def test_a_tree_beats_rollouts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the documentation does not run, or a tree of copies is worth nothing."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    search = importlib.import_module("tree_search")
    alone = search.alone
    monkeypatch.setattr(search, "INSTANCE", CALLED)  # each copy that is dropped is graded too
    # a seed under which too few of the edits that are needed are ever picked, whichever rollout picks them
    monkeypatch.setattr(search, "alone", lambda client, n, edits, _: alone(client, n, edits, random.Random(1)))
    of_tree, of_rollouts = await search.main(server.url, 2, 6, 19)  # a seed under which each pair of copies gets on
    assert of_tree == 1.0 and sum(of_rollouts) == 0.0


def test_a_session_goes_back(server: Server) -> None:
    """What was undone is still there, or counts; or the journal forgets it."""
    sid = server.begin()
    server.run(sid, "echo 1 > n; x=1; date +%N > rolled")
    rolled = _last(server, sid, "cat rolled")
    fork(server, sid)  # a checkpoint of action 2
    server.run(sid, "echo 3 > n; x=3; touch undone.txt; sleep 1000 &")
    former = server.container(sid)
    back = server.post(f"/v1/sessions/{sid}/rollback", {"to": 2}, headers={"Idempotency-Key": "k"})
    assert back.status_code == 200 and (back.json()["seq"], back.json()["notice"]) == (4, ""), back.text
    again = server.post(f"/v1/sessions/{sid}/rollback", {"to": 2}, headers={"Idempotency-Key": "k"})
    assert again.json() == back.json() and server.session(sid)["undone"] == "3-4"
    until(lambda: server.containers(f"sid={sid}") == [server.container(sid)], 10, "the former container gone")
    assert server.container(sid) != former
    assert "\r\n1 1[" in server.run(sid, "echo $x $(cat n)")
    assert _last(server, sid, "cat rolled") == rolled, "from the checkpoint, not by running it again"
    (copy,) = fork(server, sid, at=3)  # where it was before it went back
    assert "\r\n3 3[" in server.run(copy, "echo $x $(cat n)")
    (late,) = fork(server, sid)  # with what was undone in its journal
    assert server.session(late)["undone"] == "3-4"
    below, undone, early = (fork(server, late, at=at)[0] for at in (5, 3, 1))
    for one, state in ((late, "1 1"), (below, "1 1"), (undone, "3 3"), (early, "1 1")):
        assert f"\r\n{state}[" in server.run(one, "echo $x $(cat n)"), one
    family = {one["sid"]: (one["parent"], one["forked_at"]) for one in _tree(server, early)}
    assert [family[one] for one in (sid, copy, late, below, undone, early)] == [
        ("", 0), (sid, 3), (sid, 6), (late, 5), (late, 3), (late, 1)
    ]  # fmt: skip
    server.post(f"/v1/sessions/{sid}/rollback", {"to": 0}).raise_for_status()
    assert "No such file" in server.run(sid, "cat n")
    journal = server.actions(sid)
    assert [action["seq"] for action in journal] == list(range(1, 9)) and journal[3]["tool"] == "rollback"
    wrong = server.post(f"/v1/sessions/{sid}/rollback", {"to": 3})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "malformed_request"), wrong.text
    server.finish(sid)
    assert server.patch(sid) == b""
    over = server.post(f"/v1/sessions/{sid}/rollback", {"to": 1})
    assert over.json()["code"] == "session_ended"


def test_a_session_that_went_back_lives_on(serve: Callable[..., Server]) -> None:
    """The reaper takes its new container for an orphan, or a rebuilt session has its former one."""
    server = serve(reaper_period_s=0.2, journal_flush_s=0.1)
    sid = server.begin()
    server.run(sid, "x=1; echo 1 > n")
    for _ in range(3):
        server.run(sid, "x=2; echo 2 > n")
        server.post(f"/v1/sessions/{sid}/rollback", {"to": 1}).raise_for_status()
        assert "\r\n1 1[" in server.run(sid, "echo $x $(cat n)")
    until(lambda: server.in_sql("actions", sid) == 10, what="its journal in SQL")
    undone = server.session(sid)["undone"]
    until(lambda: server.in_sql("sessions", sid, f"undone = '{undone}'") == 1, what="what was undone in SQL")
    server.kill()
    os.kill(server.redis(), signal.SIGKILL)
    for path in (server.folder / "data" / "redis").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    assert "\r\n1 1[" in server.run(sid, "echo $x $(cat n)")
    assert server.session(sid)["undone"] == undone == "2-3 2-6 2-9"


def test_what_cannot_be_carried_is_told_once(server: Server) -> None:
    """A policy waits for its server, which is not there; or every copy is told of nothing."""
    sid = server.begin()
    server.run(sid, "sleep 1000 & exec 7> /tmp/log")
    (copy,) = fork(server, sid)
    told = server.run(copy, "echo x")
    assert "after action 1. It does not have: running program sleep, file descriptor 7 of the shell.]" in told
    assert "does not have" not in server.run(copy, "echo x")
    (quiet,) = fork(server, server.begin())
    assert "[This sandbox" not in server.run(quiet, "echo x")
    server.run(sid, "echo two")
    server.run(sid, "echo three")
    first, second = fork(server, sid, 2, at=2)  # the second from a checkpoint of the first, whose program never ran
    (third,) = fork(server, second)  # before any of its observations
    for one in (first, second, third):
        assert "after action 1. It does not have: running program sleep" in server.run(one, "echo x"), one
        assert "does not have" not in server.run(one, "echo x")


def test_what_ended_otherwise_is_told_to_every_copy(server: Server) -> None:
    """A copy takes a checkpoint for what its original was, and is rewarded for it."""
    sid, until_s = server.begin(), int(time.time()) + 4
    server.run(sid, f"[[ $(date +%s) -lt {until_s} ]]")
    server.run(sid, "echo later")
    until(lambda: time.time() > until_s + 1, 10)
    first, second = fork(server, sid, 2, at=1)
    (third,) = fork(server, sid, at=1)  # from the checkpoint that the first one left
    (fourth,) = fork(server, second)  # which has told of nothing yet
    told = "but not all ended as before (action 1: finished, exit code 1 instead of finished, exit code 0)"
    (fifth,) = fork(server, fourth)
    for copy in (first, third, fifth):
        assert told in server.run(copy, "echo x") and told not in server.run(copy, "echo x")
    for copy in (second, fourth):
        got = server.reward(copy)
        assert (got["verdict"], got["mask"]) == ("infra", True), got


def test_a_copy_waits_for_the_action_that_runs(server: Server) -> None:
    """A copy has half of an action, or the state before it though it was asked for afterwards."""
    sid = server.begin()
    server.run(sid, "x=1")
    with ThreadPoolExecutor(2) as pool:
        acting = pool.submit(server.run, sid, "until [[ -e /tmp/go ]]; do sleep 0.2; done; x=2")
        until(lambda: server.runs(sid, "sleep 0.2"), what="the action")
        copying = pool.submit(fork, server, sid)
        docker("exec", server.container(sid), "touch", "/tmp/go")
        acting.result()
        (copy,) = copying.result()
    assert server.session(copy)["forked_at"] == 2 and "\r\n2[" in server.run(copy, "echo $x")


def test_many_copy_the_same_state_at_once(server: Server) -> None:
    """One request's checkpoint replaces another's, whose copies still wait for containers: theirs is called damaged."""
    sid, told = server.begin(UNREAD), server.log.stat().st_size
    server.run(sid, "echo kept > /tmp/kept; x=5")
    server.run(sid, "while sleep 0.01; do date +%N > /tmp/changes; done &")  # no two checkpoints are the same
    with ThreadPoolExecutor(6) as pool:
        found = [one for sids in pool.map(lambda _: fork(server, sid, 2), range(6)) for one in sids]
    for one in found:
        assert "\r\nkept 5[" in server.run(one, "echo $(cat /tmp/kept) $x")
        server.finish(one)
    assert not [entry for entry in server.complaints(told) if "damaged" in entry["event"]]


def test_what_cannot_be_copied(server: Server) -> None:
    """A wrong request starts something, or ends in a 500."""
    sid = server.begin()
    for path, body, code in (
        ("/v1/sessions/123/fork", {}, "unknown_session"),
        (f"/v1/sessions/{sid}/fork", {"at": 99}, "malformed_request"),
        (f"/v1/sessions/{sid}/fork", {"n": 0}, "malformed_request"),
        (f"/v1/sessions/{sid}/fork", {"n": 2, "from": 1}, "malformed_request"),
        ("/v1/groups", {"from": sid, "instance": "samples__ledger-12", "n": 2}, "malformed_request"),
        ("/v1/groups", {"from": "123", "n": 2}, "unknown_session"),
        ("/v1/groups", {"instance": "samples__ledger-12", "at": 2, "n": 2}, "malformed_request"),
    ):
        answer = server.post(path, body)
        assert answer.json()["code"] == code and answer.status_code < 500, (path, body, answer.text)
    assert [one["sid"] for one in _tree(server, sid)] == [sid]


@pytest.mark.parametrize(
    "trick",
    [
        "printf '#!/bin/sh\\nexec yes\\n' > /usr/local/bin/tar; chmod +x /usr/local/bin/tar",
        "rm -f $(command -v tar) $(command -v find)",
        "builtin() { echo no; }; declare() { echo no; }; printf() { return 1; }",
        "alias builtin=false if=false '\\\\builtin=false'; shopt -s expand_aliases",
        "head -c 20M /dev/zero > /run/sandbox/full",
        "set -eu; set -o posix; shopt -s failglob nullglob; IFS=0123; readonly __sb_name=1 __sb_list=2",
        "mkdir /run/sandbox/shell /run/sandbox/save",
    ],
)
def test_a_hostile_session(server: Server, trick: str) -> None:
    """A session that plays tricks on the copying harms the server, hangs, or cannot go on."""
    sid, told = server.begin(), server.log.stat().st_size
    server.run(sid, "echo kept > /tmp/kept")
    server.say(sid, bash(trick))
    answer = server.post(f"/v1/sessions/{sid}/fork", {"n": 1})
    if answer.status_code == 200:
        (copy,) = answer.json()["sids"]
        assert "kept" in server.run(copy, "echo $(< /tmp/kept)")
    else:
        assert (answer.status_code, answer.json()["code"]) == (409, "not_forkable"), answer.text
    assert "kept" in server.say(sid, bash("echo $(< /tmp/kept)"))["content"]
    assert not [entry for entry in server.complaints(told) if entry["level"] == "error"]


def test_a_damaged_checkpoint_is_no_loss(serve: Callable[..., Server]) -> None:
    """A copy starts from a damaged file, or not at all."""
    server = serve()
    sid = server.begin()
    server.run(sid, "echo kept > /tmp/kept; x=5")
    fork(server, sid)
    blocks = [path for path in (server.folder / "data" / "checkpoints" / "blocks").glob("*/*")]
    assert blocks
    for path in blocks:
        path.write_bytes(path.read_bytes()[:-3] + b"bad")
    server.restart()
    server.finish(sid)
    (copy,) = fork(server, sid)
    assert "\r\nkept 5[" in server.run(copy, "echo $(cat /tmp/kept) $x")


# the first of two actions may take seconds on a busy host, and no checkpoint may be due after it
@pytest.mark.parametrize(("setting", "second_s"), [({"checkpoint_every": 2}, 0.8), ({"checkpoint_every_s": 5}, 4.6)])
def test_a_session_leaves_checkpoints(serve: Callable[..., Server], setting: dict[str, float], second_s: float) -> None:
    """Its past is only to be had by running its actions again, or an action waits for its checkpoint and fails."""
    server = serve(**setting)
    sid = server.begin()
    folder = server.folder / "data" / "checkpoints"
    for number in range(1, 5):
        server.run(sid, f"date +%N > /tmp/rolled-{number}; sleep {second_s if number % 2 == 0 else 0.8}")
        if number % 2 == 0:
            until(lambda at=number: (folder / f"{sid}-{at}.json").exists(), 20, "a checkpoint")
    assert sorted(path.name for path in folder.glob("*.json")) == [f"{sid}-2.json", f"{sid}-4.json"]
    rolled = _last(server, sid, "cat /tmp/rolled-2")
    server.finish(sid)
    (copy,) = fork(server, sid, at=3)
    assert _last(server, copy, "cat /tmp/rolled-2") == rolled
    assert "1" in _last(server, copy, "ls /tmp/rolled-3 | wc -l") and "No such" in server.run(copy, "ls /tmp/rolled-4")


def test_a_killed_server_keeps_copies(serve: Callable[..., Server]) -> None:
    """A copy is lost with its server, or leaks; or a half made one becomes a session."""
    server = serve(reaper_period_s=1, allow_ungradable=1)
    sid = server.begin(UNGRADED)
    server.run(sid, "x=5; echo a > f")
    (copy,) = fork(server, sid)
    server.run(copy, "y=6")
    server.restart()
    assert "\r\n5 6 a[" in server.run(copy, "echo $x $y $(cat f)")
    assert [action["seq"] for action in server.actions(copy)] == [1, 2, 3]
    server.finish(copy)
    server.finish(sid)
    until(lambda: not server.in_use(), 20, "no container left")


def _last(server: Server, sid: str, command: str) -> str:
    return server.run(sid, command).partition("[Python")[0].partition("[Current")[0].strip().splitlines()[-1]


def _tree(server: Server, sid: str) -> list[dict[str, Any]]:
    return list(httpx.get(f"{server.url}/v1/sessions/{sid}/tree", timeout=30).raise_for_status().json())
