"""A node that dies for good while it copies a session or lets it sleep or wake; another one goes on."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .fleet import fleet, on
from .serving import Server, bash, docker, until
from .staged import Point, ends, start
from .test_tree import FIRST, LAST, NEEDED, edits

N = 4
A_COPY_IN_SQL = Point("catalogue.history", "History.save_sessions", "after", about=r"parent='\d")
FALLS_ASLEEP = Point("sessions.sleeping", "Sleeping._let_go")
WAKES = Point("sessions.sleeping", "Sleeping._restore")
AGAIN = bash("echo again >> /tmp/n")


@pytest.fixture(scope="module")
def two(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """The node that goes on, and the one that dies."""
    with fleet(tmp_path_factory.mktemp("lost"), rows, 2, pool_size=0) as (servers, _):
        yield servers[0], servers[1]


def solved(server: Server) -> str:
    """A session of the server, with the fix and a line in a file."""
    sid = on(server)
    server.run(sid, f"{edits(*FIRST)} && {edits(NEEDED, *LAST)} && echo once >> /tmp/n")
    return sid


def die(server: Server) -> None:
    """Remove the containers of a dead server: its host has no power."""
    if left := server.containers():
        docker("rm", "-f", "-v", *left)


def lines(server: Server, sid: str) -> int:
    """Lines of the file."""
    observation = server.run(sid, 'echo "lines-$(wc -l < /tmp/n)-"')
    found = re.search(r"lines-(\d+)-", observation)
    assert found, observation
    return int(found[1])


def pays(server: Server, sid: str) -> bool:
    """End the session; whether it is resolved."""
    server.finish(sid)
    answer = server.reward(sid)
    assert not answer["mask"], answer
    return bool(answer["verdict"] == "resolved")


def alone(a: Server, b: Server, *sids: str) -> None:
    """End these sessions; no container is left on any node."""
    for sid in sids:
        a.finish(sid)
    for one in httpx.get(f"{a.url}/v1/sessions", params={"state": "live"}).json():
        a.finish(one["sid"])
    until(lambda: not a.containers() and not b.containers(), 30, "no container left")


def test_during_a_fork(two: tuple[Server, Server]) -> None:
    """Some of four copies lie on the dead node: they or their original are lost, doubled, or get another's reward."""
    a, b = two
    b.kill()
    start(b, A_COPY_IN_SQL)
    sid = solved(b)
    headers = {"Idempotency-Key": "fork"}
    ends(b, lambda: b.post(f"/v1/sessions/{sid}/fork", {"n": N}, headers=headers))
    die(b)
    answer = a.post(f"/v1/sessions/{sid}/fork", {"n": N}, headers=headers)
    assert answer.status_code == 200 and answer.json()["failed"] == [], answer.text
    again = answer.json()["sids"]
    tree = httpx.get(f"{a.url}/v1/sessions/{sid}/tree", timeout=30).json()
    left = {one["sid"] for one in tree} - {sid, *again}
    # none are left if all copies, and so the answer to this key, were there before SQL had the first one
    assert len(set(again)) == N and len(left) <= N
    assert [lines(a, one) for one in (sid, *again, *left)] == [1] * (1 + N + len(left))
    one, other = again[:2]
    a.run(other, "git checkout -q .")
    assert [pays(a, each) for each in (sid, one, other, *left)] == [True, True, False] + [True] * len(left)
    alone(a, b)


def test_as_a_session_falls_asleep(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint is complete and its container gone, but no record says so."""
    a, b = two
    with monkeypatch.context() as patch:
        patch.setitem(b.environment, "SANDBOX_HIBERNATE_S", "3")
        start(b, FALLS_ASLEEP)
    sid = solved(b)
    ends(b)
    die(b)
    a.say(sid, AGAIN, key="again")
    a.say(sid, AGAIN, key="again")
    assert lines(a, sid) == 2
    assert pays(a, sid)
    alone(a, b)


def test_as_a_session_wakes(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """The action that wakes it is lost or runs twice."""
    a, b = two
    with monkeypatch.context() as patch:
        patch.setitem(b.environment, "SANDBOX_HIBERNATE_S", "1")
        b.start()
    sid = solved(b)
    until(lambda: b.session(sid)["asleep"] and not b.containers(f"sid={sid}"), 30, "asleep")
    b.kill()
    start(b, WAKES)
    ends(b, lambda: b.say(sid, AGAIN, key="again"))
    die(b)
    a.say(sid, AGAIN, key="again")
    assert lines(a, sid) == 2
    assert pays(a, sid)
    alone(a, b)
