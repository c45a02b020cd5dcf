"""Which nodes live, as the others see it: sessions of a dead one are taken over, those of a live one never."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sandbox_server.app.server_lock import NodeNameTaken, take_name
from sandbox_server.errors import NodeUnreachable, OwnedElsewhere, SessionBusy, StateUnavailable
from sandbox_server.fleet.ownership import Ownership
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.nodes import HOP, Hop, Liveness, NodeRecord, Nodes

from .rollout import Open, session

TTL_S = 10.0
BEAT_S = 4.0


class _Clock:
    """The monotonic clock of all servers of a test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr("sandbox_server.state.nodes.time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def nodes_of(connection: Connection, keys: Keys) -> Callable[..., Nodes]:
    def of(node: str, boot: str = "") -> Nodes:
        return Nodes(connection, keys, node=node, boot=boot or f"{node}/1", ttl_s=TTL_S)

    return of


async def _beat(nodes: Nodes, name: str) -> bool:
    return await nodes.beat(NodeRecord(node=name, url=f"http://{name}", boot=f"{name}/1"))


async def _beats_for_a_ttl(nodes: Nodes, name: str, clock: _Clock) -> None:
    for _ in range(4):
        await _beat(nodes, name)
        clock.now += BEAT_S


async def test_a_node_without_a_heartbeat_is_dead(nodes_of: Callable[..., Nodes], clock: _Clock) -> None:
    """Its sessions would wait for it for ever."""
    one, two = nodes_of("n1"), nodes_of("n2")
    await _beat(two, "n2")
    await _beats_for_a_ttl(one, "n1", clock)
    assert await one.liveness("n2") is Liveness.ALIVE
    await two.leave()
    assert await one.liveness("n2") is Liveness.DEAD
    assert [record.node for record in await one.alive()] == ["n1"]


@pytest.mark.parametrize("case", ["has just started", "missed a beat"])
async def test_who_may_not_declare_another_dead(nodes_of: Callable[..., Nodes], clock: _Clock, case: str) -> None:
    """After an outage of Redis every heartbeat is gone, and each node would take over the sessions of all others."""
    one = nodes_of("n1")
    if case == "has just started":
        await _beat(one, "n1")
    else:
        await _beats_for_a_ttl(one, "n1", clock)
        clock.now += TTL_S
        await _beat(one, "n1")
    clock.now += BEAT_S
    assert await one.liveness("n2") is Liveness.UNKNOWN
    await _beat(nodes_of("n2"), "n2")
    assert await one.liveness("n2") is Liveness.ALIVE


async def test_the_dead_hold_nothing(nodes_of: Callable[..., Nodes], open_store: Open, clock: _Clock) -> None:
    """A session would stay locked by a server that is gone, or a server that comes back would not know of its death."""
    one = nodes_of("n1")
    here, there = await open_store("n1"), await open_store("n2")
    two = nodes_of("n2", there.boot)
    assert await _beat(two, "n2")
    await _beats_for_a_ttl(one, "n1", clock)
    async with there.lock("7", 5):
        assert await one.liveness("n2") is Liveness.ALIVE
        with pytest.raises(SessionBusy):
            async with here.lock("7", 0.1):
                pass
        await two.leave()
        assert await one.liveness("n2") is Liveness.DEAD
        async with here.lock("7", 5):
            pass
    assert not await _beat(two, "n2") and await _beat(two, "n2")


async def test_a_late_node_does_not_see_clearly(
    nodes_of: Callable[..., Nodes], connection: Connection, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, or its Redis was: what it then misses proves nothing about others."""
    one, script = nodes_of("n1"), connection.script
    await _beats_for_a_ttl(one, "n1", clock)
    assert one.healthy_for_s() > TTL_S
    clock.now += TTL_S
    assert one.healthy_for_s() == 0.0, "the next heartbeat is late"
    await _beats_for_a_ttl(one, "n1", clock)
    assert one.healthy_for_s() > TTL_S

    async def slow(*given: object) -> object:
        clock.now += TTL_S / 2 + 0.1
        return await script(*given)  # type: ignore[arg-type]

    clock.now -= BEAT_S  # as if it had sent the next one at once
    monkeypatch.setattr(connection, "script", slow)
    await _beat(one, "n1")
    assert one.healthy_for_s() == 0.0, "the answer was late"


async def test_a_silent_node_is_avoided_for_a_while(nodes_of: Callable[..., Nodes], clock: _Clock) -> None:
    """One refused connection, and the node gets no session until every server is restarted."""
    one = nodes_of("n1")
    one.shun("n2")
    assert one.is_shunned("n2") and not one.is_shunned("n3")
    clock.now += TTL_S
    assert not one.is_shunned("n2")


async def test_what_a_node_tells_is_what_it_has_now(nodes_of: Callable[..., Nodes]) -> None:
    """Sessions are sent where an image was removed; or starts of an hour ago count as if they were to come."""
    one, two = nodes_of("n1"), nodes_of("n2")
    await _beat(two, "n2")
    await two.hold(["i", "j"], ["i"])
    await two.hold(["j"], [])
    assert (await one.holders(["i"])).present == frozenset()
    assert (await one.holders(["j"])).present == {"n2"}
    await one.place("n2", 3)
    assert [count for _, count in await one.look(["n2"])] == [3]
    await _beat(two, "n2")
    assert [count for _, count in await one.look(["n2"])] == [0]


async def test_a_dead_node_is_forgotten_with_nothing_left(
    nodes_of: Callable[..., Nodes], connection: Connection, keys: Keys
) -> None:
    """Its last actions would never reach SQL, or its gradings nobody."""
    one, two = nodes_of("n1"), nodes_of("n2")
    await _beat(two, "n2")
    await two.leave()
    for left in (keys.pending("n2"), keys.gradings("n2")):
        await connection.send("XADD", left, "*", "a", "x")
        await one.forget("n2")
        assert await one.names() == ["n2"]
        await connection.send("DEL", left)
    await one.forget("n2")
    assert await one.names() == []


async def test_a_newer_server_may_tell_more(nodes_of: Callable[..., Nodes], connection: Connection, keys: Keys) -> None:
    """In the middle of an update each node would take every other for dead."""
    told = '{"node": "n2", "url": "", "boot": "n2/1", "news": 1}'
    await connection.send("SET", keys.node("n2"), told)
    found = await nodes_of("n1").get("n2")
    assert found is not None and found.node == "n2"


def test_only_nodes_forward(nodes_of: Callable[..., Nodes]) -> None:
    """A client that claims to be a node would get past the checks that the first node makes."""
    one = nodes_of("n1")
    assert not one.is_hop("") and not one.is_hop("n2") and not one.is_hop("é")
    assert one.is_hop(one._hop_secret) and not one.is_hop(nodes_of("n1")._hop_secret)


@pytest.fixture
def hop() -> Iterator[Callable[[Hop], object]]:
    yield HOP.set
    HOP.set(Hop.FREE)


async def test_who_may_take_a_session_over(
    nodes_of: Callable[..., Nodes], clock: _Clock, hop: Callable[[Hop], object]
) -> None:
    """Two nodes would run one session's actions, or a session of a dead node would be sent to it for ever."""
    one, two = nodes_of("n1"), nodes_of("n2")
    theirs, ownership = session(node="n2"), Ownership(one, node="n1")
    assert ownership.is_here(session(node="n1")) and not ownership.is_here(theirs)

    async def refused(how: Hop, error: type[Exception]) -> None:
        hop(how)
        with pytest.raises(error):
            await ownership.check_owner_dead(theirs)

    await _beat(one, "n1")
    await refused(Hop.FREE, OwnedElsewhere)
    await refused(Hop.FORWARDED, OwnedElsewhere)
    await refused(Hop.TRIED, StateUnavailable)
    await _beats_for_a_ttl(one, "n1", clock)
    await _beat(two, "n2")
    await refused(Hop.FREE, OwnedElsewhere)
    await refused(Hop.TRIED, NodeUnreachable)
    await two.leave()
    await ownership.check_owner_dead(theirs)


@contextlib.asynccontextmanager
async def _beating(nodes: Nodes, record: NodeRecord) -> AsyncIterator[None]:
    """The server sends a heartbeat, then more of them until the end of the block."""
    await nodes.beat(replace(record, beats=1))

    async def on() -> None:
        for beats in itertools.count(2):
            await asyncio.sleep(0.1)
            await nodes.beat(replace(record, beats=beats))

    beats = asyncio.create_task(on())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)


async def test_a_name_has_one_server(nodes_of: Callable[..., Nodes], connection: Connection, keys: Keys) -> None:
    """Two hosts made from one image have the same name and URL, and ended each other's sessions."""
    record = NodeRecord(node="n", url="http://n", boot="n/1", place="one")
    first, second = nodes_of("n", "n/1"), nodes_of("n", "n/2")
    await take_name("n", first, place="one", beat_s=60)  # nobody has it: no wait
    await first.beat(record)
    await take_name("n", second, place="one", beat_s=60)  # on the same data, whose lock proves that the first is dead
    await first.beat(record)

    async with _beating(first, record):
        with pytest.raises(NodeNameTaken, match="http://n, is node n"):
            await take_name("n", second, place="two", beat_s=0.5)
    await take_name("n", second, place="two", beat_s=0.05)  # the former server is silent since
    await connection.send("PEXPIRE", keys.node("n"), 1000)
    await asyncio.wait_for(take_name("n", second, place="two", beat_s=4), 3)  # and had been for 9 s: no wait


async def test_of_servers_that_start_at_once_one_gets_the_name(nodes_of: Callable[..., Nodes]) -> None:
    """Replicas with one SANDBOX_NODE_ID: neither saw a heartbeat of the other, and both began."""
    first, second = nodes_of("n", "n/1"), nodes_of("n", "n/2")
    record = NodeRecord(node="n", url="http://n", boot="n/1", place="one")
    await take_name("n", first, place="one", beat_s=60)
    with pytest.raises(NodeNameTaken, match="starts as node n"):
        await take_name("n", second, place="two", beat_s=0.02)
    await take_name("n", second, place="one", beat_s=60)  # after a kill in its start it goes on at once
    await first.beat(record)

    async with _beating(first, record):
        with pytest.raises(NodeNameTaken, match="is node n"):
            await take_name("n", second, place="two", beat_s=0.5)
    assert await first.claim("three", 1), "the one that was refused has given it back"
