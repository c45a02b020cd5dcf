"""The journal's way to SQL."""

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.records import ActionRecord
from sandbox_server.state.connection import Connection
from sandbox_server.state.journal import JournalFlusher
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store
from sandbox_server.tasks import Loops

from .rollout import Open, action, do, in_flight, session


class Sink:
    """A table with the key (sid, seq), which can be down or refuse one action."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], ActionRecord] = {}
        self.down = False
        self.writes = 0

    async def add_actions(self, actions: Sequence[ActionRecord]) -> None:
        self.writes += 1
        if self.down:
            raise CatalogueUnavailable("down")
        if any("poison" in a.content for a in actions):
            raise ValueError("cannot be written")
        for a in actions:
            self.rows.setdefault((a.sid, a.seq), a)


@pytest.fixture
def sink() -> Sink:
    return Sink()


async def test_acknowledged_actions_reach_the_sink_in_batches(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """The journal would stay in Redis, or cost a transaction an action."""
    await store.put_session(session())
    for seq in range(1, 101):
        await do(store, seq)
    flusher = JournalFlusher(connection, keys, sink, node="n1")
    assert await flusher.drain() == 100
    assert [sink.rows["7", seq].observation for seq in (1, 100)] == ["observation 1", "observation 100"]
    assert sink.writes == 2 and await flusher.drain() == 0


async def test_actions_that_come_during_a_write_wait_for_the_next_round(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """Under steady load every few actions had a transaction of their own, one right after the other."""
    await store.put_session(session())
    await do(store, 1)

    class Busy(Sink):
        async def add_actions(self, actions: Sequence[ActionRecord]) -> None:
            await super().add_actions(actions)
            if self.writes < 3:
                await do(store, self.writes + 1)

    busy = Busy()
    flusher = JournalFlusher(connection, keys, busy, node="n1")
    assert [await flusher.drain(), busy.writes] == [1, 1]
    assert [await flusher.drain(), busy.writes, sorted(busy.rows)] == [1, 2, [("7", 1), ("7", 2)]]


async def test_a_database_that_is_down_loses_nothing(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """Actions acknowledged during an outage of SQL would be gone."""
    await store.put_session(session())
    flusher = JournalFlusher(connection, keys, sink, node="n1")
    async with Loops().every(0.02, flusher.flush, name="journal"):
        sink.down = True
        await do(store, 1)
        await asyncio.sleep(0.2)
        assert not sink.rows
        sink.down = False
        for _ in range(200):
            if sink.rows:
                break
            await asyncio.sleep(0.02)
    assert list(sink.rows) == [("7", 1)]


async def test_a_server_killed_between_sql_and_redis_writes_again(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """The restart would lose or double what was on its way."""
    await store.put_session(session())
    await do(store, 1)
    await sink.add_actions(await store.actions("7"))  # the row is there, the entry too: killed before XDEL
    assert await JournalFlusher(connection, keys, sink, node="n1").drain() == 1
    assert list(sink.rows) == [("7", 1)]


async def _act_unwritably(store: Store) -> None:
    """Acknowledge three actions, of which SQL refuses the second."""
    await store.put_session(session())
    await do(store, 1)
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        await turn.acknowledge(action(2, content="poison"), cwd="/", talk_turns=0, timings_s={})
    await do(store, 3)


async def test_one_unwritable_action_does_not_hold_up_the_others(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """What a policy wrote would stop every session's history."""
    await _act_unwritably(store)
    await JournalFlusher(connection, keys, sink, node="n1").drain()
    assert sorted(sink.rows) == [("7", 1), ("7", 3)]
    assert await connection.run(connection.redis.llen(keys.rejected("n1"))) == 1
    assert await connection.run(connection.redis.ttl(keys.rejected("n1"))) > 86_400, "kept for people, not for ever"


async def test_an_acknowledged_action_of_a_forgotten_session_reaches_sql(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """Redis came back empty in the middle of an action: its acknowledgement would be a lie."""
    await store.put_session(session())
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        await connection.run(connection.redis.delete(keys.session("7"), keys.lock("7")))
        await turn.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    assert await store.session("7") is None
    await JournalFlusher(connection, keys, sink, node="n1").drain()
    assert list(sink.rows) == [("7", 1)]


async def test_a_database_that_goes_down_beside_an_unwritable_action_loses_nothing(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """The actions of that batch are written one by one: those that did not get through would be deleted with it."""
    await _act_unwritably(store)

    class Failing(Sink):
        async def add_actions(self, actions: Sequence[ActionRecord]) -> None:
            self.down = self.writes == 2
            await super().add_actions(actions)

    failing = Failing()
    flusher = JournalFlusher(connection, keys, failing, node="n1")
    with pytest.raises(CatalogueUnavailable):
        await flusher.drain()
    assert list(failing.rows) == [("7", 1)]
    await flusher.drain()
    assert sorted(failing.rows) == [("7", 1), ("7", 3)]


@pytest.mark.parametrize(("age_s", "moved"), [(30, False), (90, True)])
async def test_the_journal_of_a_node_that_is_gone_is_written_by_another(
    open_store: Open,
    connection: Connection,
    keys: Keys,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    moved: bool,
) -> None:
    """Its acknowledged actions would stay in Redis for good; those of a live node be written by two at once."""
    gone = await open_store("n2")
    await gone.put_session(session(node="n2"))
    await do(gone, 1)
    at = time.time() + age_s
    monkeypatch.setattr("sandbox_server.state.journal.clock", SimpleNamespace(now=lambda: at))
    await JournalFlusher(connection, keys, sink, node="n1").flush()
    assert bool(sink.rows) == moved
    assert bool(await connection.run(connection.redis.xlen(keys.pending("n2")))) != moved
