"""Two nodes on one Redis and one database: any node answers for any session, even those of a dead node."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from .fleet import SharedRedis, fleet, on
from .serving import UNGRADED, UNREAD, Server, bash, docker, until

FIX = "sed -i 's/total = 0/total = 0  # seen/' ledger/__init__.py; echo fix > note.txt"


@pytest.fixture(scope="module")
def two(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Two servers for all tests that need no settings of their own."""
    with fleet(tmp_path_factory.mktemp("fleet"), rows, 2, allow_ungradable=1) as (servers, _):
        yield servers


@pytest.fixture
def pair(two: list[Server]) -> list[Server]:
    """The two servers, both running."""
    for server in two:
        server.ensure_started()
    return two


@pytest.fixture
def nodes(rows: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[list[Server], SharedRedis]]]:
    """nodes(**settings): two servers."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(fleet(tmp_path, rows, 2, **settings))


def test_any_node_answers_for_any_session(pair: list[Server]) -> None:
    """Sessions are spread over the nodes; every endpoint works through the other node, with one hop."""
    a, b = pair
    places: dict[str, str] = {}
    for server in (a, b) * 3:
        if len(places) < 2:
            sid = server.begin()
            places[a.session(sid)["node"]] = sid
    assert set(places) == {a.node, b.node}
    for node, sid in places.items():
        other = b if node == a.node else a
        assert f"n-{sid}" in other.run(sid, f"echo n-{sid} | tee mark.txt")
        assert other.call(sid, "bash", command="cat mark.txt") == f"n-{sid}"
        with connect(f"{other.url.replace('http', 'ws')}/openenv/sessions/{sid}/ws") as websocket:
            websocket.send(json.dumps({"type": "step", "data": {"content": bash("cat mark.txt")}}))
            assert f"n-{sid}" in websocket.recv(timeout=30)
        assert other.finish(sid)["state"] == "ended"
        assert b"+++ b/mark.txt" in other.patch(sid)
        assert other.reward(sid)["verdict"] == "unresolved"
        assert [action["seq"] for action in other.actions(sid)] == [1, 2, 3]
    assert not a.complaints() and not b.complaints()


def test_a_key_runs_once_whichever_node_gets_the_retry(pair: list[Server]) -> None:
    a, b = pair
    sid = a.begin()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(s.run, sid, "echo once >> /tmp/n; sleep 0.5; wc -l < /tmp/n", "k1") for s in (a, b, a, b)]
        said = {future.result() for future in asked}
    assert len(said) == 1 and "\r\n" in said.pop()
    assert len(b.actions(sid)) == 1


def test_a_dead_nodes_session_goes_on(pair: list[Server]) -> None:
    """After kill -9 of a node its session is restored with files, cwd and variables, and the policy is told."""
    a, b = pair
    sid = on(b, UNGRADED)
    a.run(sid, "cd /tmp && export KEPT=11 && echo one > f.txt")
    a.call(sid, "execute_bash", command="echo two >> f.txt; false")  # not in the instance's dialect
    b.kill()
    said = a.run(sid, "echo $KEPT $(pwd) $(wc -l < f.txt)")
    assert "11 /tmp 2" in said
    assert said.startswith("[The host of this session's sandbox died.") and "its 2 actions again; all ended" in said
    assert "host of this session" not in a.run(sid, "true")
    assert a.session(sid)["node"] == a.node and len(a.actions(sid)) == 4
    assert a.finish(sid)["state"] == "ended"
    b.start()  # it finds that another node owns its session
    until(lambda: not b.containers(f"sid={sid}"), 20, "the left-behind container gone")


def test_a_frozen_node_is_a_dead_one(pair: list[Server]) -> None:
    """A frozen node still accepts connections, so requests would wait; when it continues, it must not answer again."""
    a, b = pair
    sid = on(b)
    a.run(sid, "echo one >> /tmp/n")
    with ThreadPoolExecutor(2) as pool:
        cut = pool.submit(b.say, sid, bash("sleep 4; echo cut >> /tmp/n"))
        until(lambda: b.runs(sid, "sleep 4"), what="the action under way")
        b.tell(signal.SIGSTOP)
        try:
            said = pool.submit(a.run, sid, "echo two >> /tmp/n; cat /tmp/n").result()
        finally:
            b.tell(signal.SIGCONT)
        assert said.startswith("[The host of this session") and "one\r\ntwo" in said
        assert (
            cut.result()["error"]["code"] in ("state_unavailable", "sandbox_lost") or "two" in cut.result()["content"]
        )
    assert [action["content"] for action in a.actions(sid)] == [
        bash("echo one >> /tmp/n"),
        bash("echo two >> /tmp/n; cat /tmp/n"),
    ]
    until(lambda: len(a.containers(f"sid={sid}")) == 1 and not b.containers(f"sid={sid}"), 20, "one container")
    assert "\r\n2[Python" in b.run(sid, "wc -l < /tmp/n")


def test_what_ends_differently_is_told(pair: list[Server]) -> None:
    a, b = pair
    sid = on(b)
    docker("exec", b.container(sid), "touch", "/tmp/not-of-an-action")
    a.run(sid, "test -e /tmp/not-of-an-action")
    b.kill()
    said = a.run(sid, "true")
    assert "not all ended as before (action 1: finished, exit code 1 instead of finished, exit code 0)" in said


def test_what_ends_differently_and_cannot_be_told_gets_no_reward(pair: list[Server]) -> None:
    """The patch would come from a state that the policy never saw, with an unmasked reward."""
    a, b = pair
    sid = on(b)
    docker("exec", b.container(sid), "touch", "/tmp/not-of-an-action")
    a.run(sid, "echo x > x.txt; test -e /tmp/not-of-an-action")
    b.kill()
    assert a.finish(sid)["state"] == "lost"
    reward = a.reward(sid)
    assert (reward["verdict"], reward["mask"], reward["reward"]) == ("infra", True, 0.0)
    assert "1 of its actions ended differently" in reward["cause"]


def test_without_replay_the_end_is_honest(nodes: Callable[..., tuple[list[Server], SharedRedis]]) -> None:
    (a, b), _ = nodes(restore="off")
    sid = on(b)
    a.run(sid, FIX)
    b.kill()
    reply = a.say(sid, bash("ls"))
    assert reply["error"]["code"] == "sandbox_lost" and "host" in reply["content"]
    reward = a.reward(sid)
    assert (reward["verdict"], reward["mask"], reward["reward"]) == ("infra", True, 0.0)


def test_a_restart_is_waited_for(nodes: Callable[..., tuple[list[Server], SharedRedis]]) -> None:
    """A rolling restart: the other node holds requests until the owner is back, and nothing is restored."""
    (a, b), _ = nodes(node_ttl_s=60)
    sid = on(b)
    a.run(sid, "export KEPT=7")
    with ThreadPoolExecutor(1) as pool:
        b.kill(signal.SIGTERM)
        asked = pool.submit(a.run, sid, "echo kept-$KEPT")
        time.sleep(1)
        b.start()
        assert "kept-7" in asked.result()
    assert a.session(sid)["node"] == b.node


def test_draining(nodes: Callable[..., tuple[list[Server], SharedRedis]]) -> None:
    """Live sessions are finished, no new ones start, the server exits with 0."""
    (a, b), _ = nodes()
    sid = on(b, UNREAD)
    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(b.cli, "drain", "--timeout-s", "60")
        until(lambda: httpx.get(f"{b.url}/readyz", timeout=5).status_code == 503, 20, "out of the rotation")
        assert {a.session(b.begin())["node"] for _ in range(3)} == {a.node}
        assert "hi" in a.run(sid, "echo hi")
        a.finish(sid)
        assert f"{b.node} is drained" in draining.result()
    assert b.ended() == 0
    assert [node["node"] for node in httpx.get(f"{a.url}/v1/nodes", timeout=5).json()] == [a.node]


def test_an_end_whose_node_dies(pair: list[Server]) -> None:
    """If the patch is already in SQL, another node finishes the end without a replay."""
    a, b = pair
    sid = on(b)
    a.run(sid, "echo x > x.txt; (sleep 1000 &)")
    assert a.finish(sid)["state"] == "ended"
    b.kill()
    assert a.reward(sid)["verdict"] == "unresolved"
