"""A server killed while it takes a checkpoint, makes copies, or lets a session sleep or wake: nothing is lost, doubled
or left.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .serving import UNGRADED, UNREAD, Server, bash, until
from .staged import Point, ends, start

FILL = "head -c 3M /dev/urandom > /tmp/large; echo once >> /tmp/n; cd /tmp; export KEPT=$RANDOM"
LOOK = "cksum < /tmp/large; wc -l < /tmp/n; echo $PWD $KEPT"
AGAIN = bash("echo again >> /tmp/n")
COPIES = 8
BLOCK_WRITTEN = Point("checkpoints.store", "Checkpoints.put", "after")
COMPLETE = Point("checkpoints.store", "Checkpoints.keep", "after")
SOME_COPIED = Point("state.store", "Store.rebuild", "after", 3)
SLEEPING = "sessions.sleeping"
MOVED = "Store.move"


@pytest.fixture(scope="module")
def stopped(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests, which start it."""
    settings = {"SANDBOX_REAPER_PERIOD_S": "1", "SANDBOX_ALLOW_UNGRADABLE": "1"}
    server = Server(tmp_path_factory.mktemp("killed"), rows, settings)
    yield server
    server.close()


@pytest.fixture
def server(stopped: Server) -> Iterator[Server]:
    """The server, with no checkpoint; at the end it has no session, no container and no half written checkpoint."""
    folder = stopped.folder / "data" / "checkpoints"
    for path in [*folder.glob("blocks/*/*"), *folder.glob("*.json")]:
        path.unlink()
    yield stopped
    for one in httpx.get(f"{stopped.url}/v1/sessions", params={"state": "live"}).json():
        stopped.finish(one["sid"])
    until(lambda: not stopped.containers(), 30, "no container without a session")
    assert not list(folder.rglob("*.part"))
    named = "".join(path.read_text() for path in folder.glob("*.json"))
    assert all(path.name in named for path in folder.glob("blocks/*/*"))
    stopped.kill()


def copies(server: Server, sid: str) -> set[str]:
    """The session's copies that live."""
    tree = httpx.get(f"{server.url}/v1/sessions/{sid}/tree").json()
    return {one["sid"] for one in tree if one["state"] == "live"} - {sid}


def filled(server: Server, instance: str = UNGRADED) -> tuple[str, str]:
    """A session, and what `LOOK` shows of it."""
    sid = server.begin(instance)
    server.run(sid, FILL)
    return sid, seen(server, sid)


def seen(server: Server, sid: str) -> str:
    """Files, folder and variable."""
    return server.run(sid, LOOK).split("[Python")[0]


def stored(server: Server) -> tuple[bool, bool]:
    """Whether there are blocks, and whether there is a complete checkpoint."""
    folder = server.folder / "data" / "checkpoints"
    return any(folder.glob("blocks/*/*")), any(folder.glob("*.json"))


@pytest.mark.parametrize(
    ("point", "most", "kept"),
    [(BLOCK_WRITTEN, 0, (True, False)), (COMPLETE, 0, (True, True)), (SOME_COPIED, COPIES, (True, True))],
    ids=["first-block", "checkpoint-complete", "three-of-eight"],
)
def test_during_a_fork(server: Server, point: Point, most: int, kept: tuple[bool, bool]) -> None:
    """A copy is half filled, its container stays, the retried request gets it, or the original suffers."""
    start(server, point)
    sid, state = filled(server, UNREAD)  # up to twelve sessions end: each would make a container for its patch

    def fork() -> httpx.Response:
        headers = {"Idempotency-Key": "fork"}
        return server.post(f"/v1/sessions/{sid}/fork", {"n": COPIES if most else 1}, headers=headers)

    ends(server, fork)
    assert stored(server) == kept
    server.start()
    left = copies(server, sid)
    assert bool(most) == (len(left) in range(3, COPIES + 1)) and len(left) <= most
    again = fork().json()
    assert again["failed"] == [] and len(set(again["sids"]) - left) == (COPIES if most else 1)
    for one in (sid, *left, *again["sids"]):
        assert seen(server, one) == state
    until(lambda: len(server.containers()) == len({sid, *left, *again["sids"]}), 30, "no container without a session")


@pytest.mark.parametrize("point", [BLOCK_WRITTEN, COMPLETE], ids=["first-block", "complete"])
def test_during_a_regular_checkpoint(server: Server, monkeypatch: pytest.MonkeyPatch, point: Point) -> None:
    """A half written checkpoint is used, or an acknowledged action is lost."""
    monkeypatch.setitem(server.environment, "SANDBOX_CHECKPOINT_EVERY", "2")
    start(server, point)
    sid, state = filled(server)  # the checkpoint follows the second action
    ends(server)
    server.start()
    assert seen(server, sid) == state
    (copy,) = server.post(f"/v1/sessions/{sid}/fork", {"n": 1}).json()["sids"]
    assert seen(server, copy) == state


@pytest.mark.parametrize(
    ("point", "asleep"),
    [
        (Point(SLEEPING, "Sleeping._let_go"), False),
        (Point("state.store", MOVED), False),
        (Point(SLEEPING, "Sleeping._remove"), True),
    ],
    ids=["checkpoint-complete", "only-sql-knows", "container-stays"],
)
def test_as_a_session_falls_asleep(server: Server, monkeypatch: pytest.MonkeyPatch, point: Point, asleep: bool) -> None:
    """The session has neither a container nor a checkpoint, or both for ever."""
    with monkeypatch.context() as patch:
        patch.setitem(server.environment, "SANDBOX_HIBERNATE_S", "2")
        start(server, point)
    sid, state = filled(server)
    ends(server)
    assert stored(server) == (True, True) and len(server.containers()) == 1
    server.start()
    assert server.session(sid)["asleep"] is asleep
    until(lambda: len(server.containers()) == (not asleep), 30, "no container of a session that sleeps")
    assert seen(server, sid) == state


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (Point("sandbox.bash.sandbox", "BashSandbox.boot"), False),
        (Point(SLEEPING, "Sleeping._restore"), False),
        (Point("state.store", MOVED), False),
        (Point("state.store", MOVED, "after"), True),
    ],
    ids=["no-shell", "nothing-restored", "not-recorded", "recorded"],
)
def test_as_a_session_wakes(server: Server, monkeypatch: pytest.MonkeyPatch, point: Point, told: bool) -> None:
    """The action that wakes a session runs twice, or never and this is not told; or not in the session's container."""
    with monkeypatch.context() as patch:
        patch.setitem(server.environment, "SANDBOX_HIBERNATE_S", "0.6")
        server.start()
    sid, state = filled(server)
    until(lambda: server.session(sid)["asleep"] and not server.containers(), 20, "asleep")
    server.kill()
    start(server, point)
    ends(server, lambda: server.say(sid, AGAIN, key="wakes"))
    assert len(server.containers()) == 1
    server.start()
    assert ("was interrupted" in server.say(sid, AGAIN, key="wakes")["content"]) is told
    assert seen(server, sid) == (state if told else state.replace("\r\n1\r\n", "\r\n2\r\n"))
    until(lambda: len(server.containers()) == 1, 30, "no container without a session")
