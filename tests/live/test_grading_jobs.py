"""Gradings of two nodes on one Redis and one database: each is done exactly once, whichever node dies."""

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from redis import Redis

from .fleet import SharedRedis, fleet, on
from .serving import Server, until

Nodes = Callable[..., tuple[list[Server], SharedRedis]]


def slow(seconds: float, mark: str = "") -> str:
    """A patch whose tests take as long."""
    return f"echo 'import time; time.sleep({seconds:g})  # {mark}' >> ledger/__init__.py"


@pytest.fixture
def nodes(rows: Path, tmp_path: Path) -> Iterator[Nodes]:
    """nodes(**settings): two servers."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(fleet(tmp_path, rows, 2, **settings))


def grader_of(server: Server, reward: dict[str, object]) -> object:
    """The grading node named in the receipt."""
    return server.get(f"/v1/receipts/{reward['receipt']}")["node"]


def stored(folder: Path, table: str, sid: str) -> int:
    """Rows of the session in SQL."""
    with closing(sqlite3.connect(folder / "catalogue.sqlite3")) as database:
        return int(database.execute(f"select count(*) from {table} where sid = ?", (sid,)).fetchone()[0])


def test_killed_in_the_middle_of_a_grading(nodes: Nodes, tmp_path: Path) -> None:
    """Another node restarts it well before its search in SQL; one correct verdict, no leftovers."""
    (a, b), _ = nodes(grade_recover_s=1000)
    sid, waiting = on(b), on(b)
    a.run(sid, slow(4))
    a.run(waiting, "echo x > x.txt")
    b.finish(sid)
    until(lambda: b.containers(f"sid={sid}", "role=grade"), 20, "a grading under way")
    b.kill()
    until(lambda: a.containers(f"sid={sid}", "role=grade"), 60, "the grading again")
    got = a.reward(sid)
    assert (got["verdict"], got["mask"]) == ("unresolved", False)
    assert grader_of(a, got) == a.node
    assert a.reward(sid) == got
    assert a.reward(waiting)["verdict"] == "unresolved"  # restored, ended, graded
    assert (stored(tmp_path, "verdicts", sid), stored(tmp_path, "receipts", sid)) == (1, 1)
    until(lambda: not a.containers("role=grade"), 20, "its container gone")
    b.start()
    until(lambda: not b.containers("role=grade"), 20, "what the dead server left gone")
    assert b.reward(sid) == got


def test_a_server_that_stops_hands_over(nodes: Nodes) -> None:
    """After SIGTERM during a grading, nobody waits for the node's time to live."""
    (a, b), _ = nodes(node_ttl_s=100, grade_recover_s=1000)
    sid = on(b)
    a.run(sid, slow(3))
    b.finish(sid)
    until(lambda: b.containers(f"sid={sid}", "role=grade"), 20, "a grading under way")
    b.kill(signal.SIGTERM)
    stopped = time.monotonic()
    until(lambda: a.containers(f"sid={sid}", "role=grade"), 6, "the grading again")
    assert time.monotonic() - stopped < 80
    got = a.reward(sid)
    assert (got["verdict"], grader_of(a, got)) == ("unresolved", a.node)


def test_a_node_with_a_backlog_is_helped(nodes: Nodes) -> None:
    """One node grades for minutes while another has nothing to do."""
    (a, b), _ = nodes(grade_concurrency=1, grade_prefetch=0)
    sids = [on(b) for _ in range(5)]
    for number, sid in enumerate(sids):
        a.run(sid, slow(3, str(number)))
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(b.finish, sids))
        got = list(pool.map(a.reward, sids))
    assert {reward["verdict"] for reward in got} == {"unresolved"}
    graders = [grader_of(a, reward) for reward in got]
    assert set(graders) == {a.node, b.node}, graders


def test_the_same_patch_on_two_nodes_is_graded_once(nodes: Nodes) -> None:
    """Otherwise a group of equal patches would cost one grading each."""
    (a, b), _ = nodes()
    sids = [on(a), on(b)]
    for sid in sids:
        a.run(sid, slow(6))
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(server.finish, sid) for server, sid in zip((a, b), sids, strict=True)]
        assert all(end.result()["state"] == "ended" for end in ended)
        got = list(pool.map(a.reward, sids))
    receipts = [a.get(f"/v1/receipts/{reward['receipt']}") for reward in got]
    assert [receipt["verdict_name"] if "verdict_name" in receipt else receipt["name"] for receipt in receipts] == [
        "unresolved",
        "unresolved",
    ]
    assert receipts[0]["timings_s"]["tests"] == receipts[1]["timings_s"]["tests"]


def test_what_redis_forgot_is_found_in_sql(nodes: Nodes) -> None:
    """A patch whose job went with Redis, and whose node died, waits until somebody asks for its reward."""
    (a, b), redis = nodes(grade_recover_s=2)
    sid = on(b)
    a.run(sid, slow(4))
    b.finish(sid)
    until(lambda: b.containers(f"sid={sid}", "role=grade"), 20, "a grading under way")
    b.kill()
    with Redis(unix_socket_path=str(redis.socket)) as client:
        client.flushall()
    until(lambda: a.session(sid).get("verdict") is not None, 60, "its verdict")
    got = a.reward(sid)
    assert (got["verdict"], grader_of(a, got)) == ("unresolved", a.node)
