"""The store on both kinds of Redis: what every session, lock, action and journal relies on."""

import asyncio
import dataclasses
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pytest
from redis.asyncio import Redis

from sandbox_server.errors import CatalogueUnavailable, SessionBusy, StateUnavailable
from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.sessions.lifecycle import SessionState, sources_of
from sandbox_server.state.connection import Connection
from sandbox_server.state.history import MAX_BYTES, MAX_TEXTS
from sandbox_server.state.journal import JournalFlusher
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store

from .state_backends import embedded, external

Open = Callable[..., "asyncio.Future[Store]"]


@pytest.fixture(scope="module", params=[embedded, external], ids=["embedded", "external"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def keys() -> Keys:
    return Keys(f"test-{secrets.token_hex(4)}:")


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Connection]:
    connection = Connection(url, timeout_s=5)
    yield connection
    await connection.close()


@pytest.fixture
async def open_store(connection: Connection, keys: Keys) -> AsyncIterator[Open]:
    stores: list[Store] = []

    async def open_one(node: str = "n1", lease_s: float = 30.0, result_ttl_s: float = 600.0) -> Store:
        store = Store(connection, keys, node=node, lock_lease_s=lease_s, result_ttl_s=result_ttl_s)
        await store.open()
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> Store:
    return await open_store()


def session(sid: str = "7", **changes: object) -> SessionRecord:
    now = time.time()
    record = SessionRecord(sid, "live", "a__b-1", "n1", "c0ffee", now, now, now + 3600, cwd="/testbed")
    return dataclasses.replace(record, **changes)


def in_flight(nonce: str = "n", **changes: object) -> InFlight:
    return dataclasses.replace(InFlight("true", 1.0, 101.0, nonce), **changes)


def action(seq: int = 1, sid: str = "7", **changes: object) -> ActionRecord:
    record = ActionRecord(sid, seq, "true", f"observation {seq}", "execute_bash", "finished", 0, 5.0, 0.5)
    return dataclasses.replace(record, **changes)


async def do(store: Store, seq: int, sid: str = "7", key: str = "") -> None:
    async with store.turn(sid, in_flight(f"n{seq}"), idempotency_key=key, wait_s=5) as turn:
        assert turn.may_run
        await turn.acknowledge(action(seq, sid, idempotency_key=key), cwd=f"/{seq}", talk_turns=seq, timings_s={})


# ---- sessions


async def test_a_session_comes_back_as_it_was(store: Store) -> None:
    """Any field lost or of another type would break a restart."""
    record = session(cwd="/tmp/ü \udc80", talk_turns=2, actions=3, ended_at=1.25, cause="x", shell_token="t")
    record = dataclasses.replace(record, timings_s={"start_create": 0.1, "action_run": 1e-05})
    await store.put_session(record)
    assert await store.session("7") == record
    assert await store.session("8") is None


async def test_update_changes_only_known_fields_of_known_sessions(store: Store) -> None:
    """A misspelt field, or a record brought to life by an update, would go unnoticed."""
    assert not await store.update("7", cwd="/x")
    assert await store.session("7") is None
    await store.put_session(session())
    assert await store.update("7", cwd="/x")
    assert (await store.session("7")).cwd == "/x"
    for wrong in ({"cwdd": "/x"}, {"actions": "3"}, {"state": "ended"}):
        with pytest.raises(TypeError):
            await store.update("7", **wrong)


async def test_touch_moves_idle_time(store: Store) -> None:
    """A session in use would be ended as idle."""
    await store.put_session(session(touched_at=1.0))
    assert await store.touch("7")
    assert time.time() - (await store.session("7")).touched_at < 5


async def test_of_many_moves_at_once_one_wins(store: Store) -> None:
    """Two enders of one session would both capture its patch and remove its container."""
    await store.put_session(session())
    won = await asyncio.gather(*(store.move("7", "ending", frozenset({"live"}), end_reason=f"r{i}") for i in range(20)))
    assert sum(won) == 1
    record = await store.session("7")
    assert record.state == "ending" and record.end_reason == f"r{won.index(True)}"


async def test_moves_follow_the_lifecycle(store: Store) -> None:
    """An ended session that comes back to life has no container."""
    await store.put_session(session())
    assert not await store.move("7", SessionState.ENDED, sources_of(SessionState.ENDED))
    assert await store.move("7", SessionState.ENDING, sources_of(SessionState.ENDING))
    assert await store.move("7", SessionState.ENDING, sources_of(SessionState.ENDING))
    assert await store.move("7", SessionState.ENDED, sources_of(SessionState.ENDED), ended_at=3.0)
    assert not await store.move("7", SessionState.LOST, sources_of(SessionState.LOST))
    assert not await store.move("404", SessionState.LOST, sources_of(SessionState.LOST))


async def test_live_lists_a_nodes_unended_sessions(store: Store) -> None:
    """The reaper would miss a session, or end one of another node."""
    await store.put_session(session("1"))
    await store.put_session(session("2"))
    await store.put_session(session("3", node="n2"))
    await store.put_session(session("4", state="ended"))
    await store.move("2", "ending", frozenset({"live"}))
    assert [r.sid for r in await store.live("n1")] == ["1", "2"]
    assert [r.sid for r in await store.live()] == ["1", "2", "3"]
    assert await store.live("elsewhere") == []
    await store.move("2", "lost", frozenset({"ending"}))
    assert [r.sid for r in await store.live("n1")] == ["1"]


async def test_an_ended_session_is_kept_for_its_ttl_and_its_undo_goes(
    store: Store, connection: Connection, keys: Keys
) -> None:
    """A reward asked for hours later would find no session; or undo texts would fill Redis for a week."""
    await store.put_session(session())
    await do(store, 1, key="k")
    await store.history("7").push("/a", "text")
    live_ttl = await connection.run(connection.redis.pttl(keys.session("7")))
    assert 3600_000 < live_ttl <= 4200_000
    await store.move("7", "ended", frozenset({"live"}))
    assert 590_000 < await connection.run(connection.redis.pttl(keys.session("7"))) <= 600_000
    assert 590_000 < await connection.run(connection.redis.pttl(keys.journal("7"))) <= 600_000
    assert await store.history("7").pop("/a") is None
    assert await store.actions("7") == [action(1, idempotency_key="k")]


async def test_every_key_of_a_session_ends_by_itself(store: Store, connection: Connection, keys: Keys) -> None:
    """A node that never comes back would leave its sessions in Redis for good."""
    await store.put_session(session())
    await do(store, 1, key="k")
    await store.history("7").push("/a", "text")
    async with store.turn("7", in_flight(), wait_s=5):
        pass
    for_good = {keys.live("n1"), keys.nodes, keys.boots, keys.pending("n1")}
    found = [name.decode() async for name in connection.redis.scan_iter(f"{keys.prefix}*")]
    assert len(found) == 4 + 6
    for name in set(found) - for_good:
        assert await connection.run(connection.redis.pttl(name)) > 0, name


# ---- locks


async def test_waiters_of_one_process_are_served_in_order(store: Store) -> None:
    """A session's later action would overtake an earlier one."""
    order: list[int] = []

    async def wait(i: int) -> None:
        async with store.lock("7", 10):
            order.append(i)
            await asyncio.sleep(0.001)

    await asyncio.gather(*(wait(i) for i in range(30)))
    assert order == list(range(30))


async def test_two_servers_never_hold_one_session(open_store: Open) -> None:
    """Two replicas would write into one shell at once."""
    stores = [await open_store(f"n{i}") for i in range(3)]
    inside = 0

    async def wait(store: Store) -> None:
        nonlocal inside
        async with store.lock("7", 20):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.002)
            inside -= 1

    await asyncio.gather(*(wait(store) for store in stores for _ in range(10)))


async def test_a_lock_not_got_in_time_is_a_busy_answer(open_store: Open) -> None:
    """A request would hang, or a lock would stay with one who gave up."""
    one, two = await open_store("n1"), await open_store("n2")
    async with one.lock("7", 5):
        for other in (one, two):
            began = time.monotonic()
            with pytest.raises(SessionBusy):
                async with other.lock("7", 0.2):
                    raise AssertionError
            assert 0.15 < time.monotonic() - began < 1
    async with two.lock("7", 0.5), one.lock("8", 0.5):
        pass


async def test_a_cancelled_waiter_leaves_the_queue(open_store: Open) -> None:
    """A client that hangs up while it waits would block everyone after it."""
    one, two = await open_store("n1"), await open_store("n2")
    async with one.lock("7", 5):
        waiters = [asyncio.create_task(store.lock("7", 20).__aenter__()) for store in (one, two)]
        await asyncio.sleep(0.05)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
    async with two.lock("7", 0.5):
        pass


async def test_a_held_lease_is_renewed(open_store: Open) -> None:
    """A long command would lose its session to another server in the middle."""
    one, two = await open_store("n1", lease_s=0.3), await open_store("n2", lease_s=0.3)
    async with one.lock("7", 5):
        with pytest.raises(SessionBusy):
            async with two.lock("7", 1.2):
                raise AssertionError


async def test_a_held_lease_that_ran_out_is_taken_again(open_store: Open, connection: Connection, keys: Keys) -> None:
    """After a pause of Redis or of the server, two servers could act on one session at once."""
    one, two = await open_store("n1", lease_s=0.6), await open_store("n2", lease_s=0.6)
    async with one.lock("7", 5):
        await connection.run(connection.redis.delete(keys.lock("7")))
        await asyncio.sleep(0.5)
        with pytest.raises(SessionBusy):
            async with two.lock("7", 0.1):
                raise AssertionError


async def test_a_dead_servers_lease_ends(open_store: Open) -> None:
    """The session of a host that never comes back would be locked for ever."""
    dead, other = await open_store("n1", lease_s=0.5), await open_store("n2", lease_s=0.5)
    held = dead.lock("7", 5)
    await held.__aenter__()
    await dead.close()  # as a process that is gone: nothing renews, nothing releases
    began = time.monotonic()
    async with other.lock("7", 5):
        assert 0.2 < time.monotonic() - began < 1.5
    await held.__aexit__(None, None, None)


async def test_a_restarted_node_frees_its_leases_at_once(open_store: Open) -> None:
    """After kill -9 and a restart every session would answer busy for half a minute."""
    former = await open_store("n1")
    held = former.lock("7", 5)
    await held.__aenter__()
    await former.close()
    present, other = await open_store("n1"), await open_store("n2")
    for store in (present, other):
        async with store.lock("7", 0.5):
            pass
    await held.__aexit__(None, None, None)


async def test_a_former_holder_frees_nothing_that_is_not_its_own(open_store: Open) -> None:
    """A server that woke late would release the lock that another one holds by now."""
    former = await open_store("n1")
    held = former.lock("7", 5)
    await held.__aenter__()
    present = await open_store("n1")
    async with present.lock("7", 0.5):
        await held.__aexit__(None, None, None)
        with pytest.raises(SessionBusy):
            async with (await open_store("n2")).lock("7", 0.1):
                raise AssertionError


# ---- actions


async def test_an_action_is_written_down_and_frees_the_session(store: Store) -> None:
    """Counters, cwd or idle time would be those of another moment."""
    await store.put_session(session())
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        assert turn.may_run and turn.record.sid == "7" and turn.stored is None and turn.interrupted is None
        assert await store.in_flight("7") == in_flight()
        await turn.acknowledge(action(), cwd="/x", talk_turns=2, timings_s={})
        assert not turn.may_run
        async with store.lock("8", 1):
            pass
    record = await store.session("7")
    assert (record.actions, record.cwd, record.talk_turns, record.touched_at) == (1, "/x", 2, 5.5)
    assert await store.in_flight("7") is None
    assert await store.actions("7") == [action()]


@pytest.mark.parametrize("content", ["", "\0", "\ud800", "ü😀", "x" * 1_000_000])
async def test_any_text_survives_the_journal(store: Store, content: str) -> None:
    """What a policy writes would break the journal."""
    await store.put_session(session())
    async with store.turn("7", in_flight(content=content), wait_s=5) as turn:
        assert (await store.in_flight("7")).content == content
        await turn.acknowledge(action(content=content, observation=content), cwd="/", talk_turns=0, timings_s={})
    assert (await store.actions("7"))[0].observation == content


async def test_a_known_key_gives_the_stored_action(store: Store) -> None:
    """A retried request would run its command twice."""
    await store.put_session(session())
    await do(store, 1, key="k1")
    await do(store, 2, key="k2")
    async with store.turn("7", in_flight(), idempotency_key="k1", wait_s=5) as turn:
        assert not turn.may_run and turn.stored == action(1, idempotency_key="k1")
    await store.move("7", "ended", frozenset({"live"}))
    async with store.turn("7", in_flight(), idempotency_key="k2", wait_s=5) as turn:
        assert turn.stored.seq == 2


async def test_a_retry_waits_for_its_first_attempt(open_store: Open) -> None:
    """The retry that overtakes would run the command a second time."""
    one, two = await open_store("n1"), await open_store("n2")
    await one.put_session(session())

    async def attempt(store: Store) -> bool:
        async with store.turn("7", in_flight(), idempotency_key="k", wait_s=5) as turn:
            if turn.may_run:
                await asyncio.sleep(0.1)
                await turn.acknowledge(action(idempotency_key="k"), cwd="/", talk_turns=0, timings_s={})
                return True
            return False

    ran = await asyncio.gather(attempt(one), attempt(one), attempt(two), attempt(two))
    assert sum(ran) == 1


async def test_no_turn_on_a_session_that_is_not_live(store: Store) -> None:
    """A finished session would still run commands."""
    async with store.turn("404", in_flight(), wait_s=5) as turn:
        assert turn.record is None and not turn.may_run
    await store.put_session(session(state="ending"))
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        assert turn.record.state == "ending" and not turn.may_run
    assert await store.in_flight("7") is None and await store.in_flight("404") is None


async def test_an_action_that_was_never_acknowledged_is_told(open_store: Open) -> None:
    """After a crash the policy would not learn that its command was cut off."""
    former = await open_store("n1")
    await former.put_session(session())
    held = former.turn("7", in_flight("old"), wait_s=5)
    await held.__aenter__()
    await former.close()
    present = await open_store("n1")
    async with present.turn("7", in_flight("new"), wait_s=0.5) as turn:
        assert turn.may_run and turn.interrupted == in_flight("old")
        await turn.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    async with present.turn("7", in_flight("newer"), wait_s=0.5) as turn:
        assert turn.interrupted is None
    await held.__aexit__(None, None, None)


async def test_two_owners_cannot_acknowledge_one_number(open_store: Open) -> None:
    """A server that lost its lease would overwrite the journal of its successor."""
    former = await open_store("n1")
    await former.put_session(session())
    async with former.turn("7", in_flight("old"), wait_s=5) as late:
        present = await open_store("n1")
        await do(present, 1)
        with pytest.raises(StateUnavailable):
            await late.acknowledge(action(observation="late"), cwd="/", talk_turns=0, timings_s={})
    assert [a.observation for a in await present.actions("7")] == ["observation 1"]


async def test_an_action_costs_two_round_trips(store: Store, url: str, connection: Connection) -> None:
    """Every further exchange is latency of every action."""
    await store.put_session(session())
    await do(store, 1)
    before = await _calls(connection)
    for seq in range(2, 12):
        await do(store, seq, key=f"k{seq}")
    after = await _calls(connection)
    grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    grown.pop("info", None)
    scripts = grown.pop("evalsha")
    assert scripts == 20
    # what is left ran inside those scripts: nothing that a client sends by itself
    assert set(grown) <= {
        *("get", "set", "del", "hget", "hset", "hgetall", "lindex", "rpush", "xadd", "pttl", "pexpire")
    }, grown


async def test_a_lock_is_taken_in_one_round_trip(store: Store, connection: Connection) -> None:
    """As above, for postprocess and the reaper."""
    async with store.lock("7", 5):
        pass
    before = (await _calls(connection))["evalsha"]
    async with store.lock("7", 5):
        assert (await _calls(connection))["evalsha"] == before + 1
    assert (await _calls(connection))["evalsha"] == before + 2


async def _calls(connection: Connection) -> dict[str, int]:
    stats = await connection.run(connection.redis.info("commandstats"))
    return {name.removeprefix("cmdstat_"): int(value["calls"]) for name, value in stats.items()}


# ---- the journal's way to SQL


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
    flusher = JournalFlusher(connection, keys, sink, node="n1", period_s=0.05)
    assert await flusher.drain() == 100
    assert [sink.rows["7", seq].observation for seq in (1, 100)] == ["observation 1", "observation 100"]
    assert sink.writes == 2 and await flusher.drain() == 0


async def test_a_database_that_is_down_loses_nothing(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """Actions acknowledged during an outage of SQL would be gone."""
    await store.put_session(session())
    flusher = JournalFlusher(connection, keys, sink, node="n1", period_s=0.02)
    running = asyncio.create_task(flusher.run())
    sink.down = True
    await do(store, 1)
    await asyncio.sleep(0.2)
    assert not sink.rows and not running.done()
    sink.down = False
    for _ in range(200):
        if sink.rows:
            break
        await asyncio.sleep(0.02)
    running.cancel()
    assert list(sink.rows) == [("7", 1)]


async def test_a_server_killed_between_sql_and_redis_writes_again(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """The restart would lose or double what was on its way."""
    await store.put_session(session())
    await do(store, 1)
    await sink.add_actions(await store.actions("7"))  # the row is there, the entry too: killed before XDEL
    assert await JournalFlusher(connection, keys, sink, node="n1", period_s=1).drain() == 1
    assert list(sink.rows) == [("7", 1)]


async def test_one_unwritable_action_does_not_hold_up_the_others(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """What a policy wrote would stop every session's history."""
    await store.put_session(session())
    await do(store, 1)
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        await turn.acknowledge(action(2, content="poison"), cwd="/", talk_turns=0, timings_s={})
    await do(store, 3)
    await JournalFlusher(connection, keys, sink, node="n1", period_s=1).drain()
    assert sorted(sink.rows) == [("7", 1), ("7", 3)]
    assert await connection.run(connection.redis.llen(keys.rejected("n1"))) == 1


async def test_an_acknowledged_action_of_a_forgotten_session_reaches_sql(
    store: Store, connection: Connection, keys: Keys, sink: Sink
) -> None:
    """Redis came back empty in the middle of an action: its acknowledgement would be a lie."""
    await store.put_session(session())
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        await connection.run(connection.redis.delete(keys.session("7"), keys.lock("7")))
        await turn.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    assert await store.session("7") is None
    await JournalFlusher(connection, keys, sink, node="n1", period_s=1).drain()
    assert list(sink.rows) == [("7", 1)]


# ---- editor history


async def test_undo_is_a_stack_per_path_and_session(store: Store) -> None:
    """An undo would restore another file's text."""
    for sid in ("7", "8"):
        await store.put_session(session(sid))
    one, two = store.history("7"), store.history("8")
    for text in ("a1", "a2 ü\udc80", ""):
        await one.push("/a", text)
    await one.push("/b", "b1")
    await two.push("/a", "other")
    assert [await one.pop("/a") for _ in range(4)] == ["", "a2 ü\udc80", "a1", None]
    assert await one.pop("/b") == "b1" and await two.pop("/a") == "other"


async def test_undo_forgets_the_oldest_past_its_bounds(store: Store, connection: Connection, keys: Keys) -> None:
    """One session would fill Redis."""
    await store.put_session(session())
    history = store.history("7")
    for i in range(MAX_TEXTS + 20):
        await history.push("/a", f"{i}")
    assert await connection.run(connection.redis.hlen(keys.undo_text("7"))) == MAX_TEXTS
    for _ in range(3):
        await history.push("/b", secrets.token_hex(MAX_BYTES * 4 // 10 * 2))  # hex packs to about a half
    assert await connection.run(connection.redis.memory_usage(keys.undo_text("7"))) < 1.2 * MAX_BYTES
    assert await history.pop("/b") is not None
    assert await history.pop("/a") is None


async def test_a_text_too_large_to_keep_takes_its_history_along(store: Store) -> None:
    """An undo that skips a state restores one that never was the last."""
    await store.put_session(session())
    history = store.history("7")
    await history.push("/a", "old")
    await history.push("/a", secrets.token_bytes(MAX_BYTES + 1000).decode("latin-1"))
    assert await history.pop("/a") is None


# ---- faults


async def test_a_redis_that_hangs_is_an_error_within_the_bound(url: str, keys: Keys) -> None:
    """A request would hang with it."""
    connection = Connection(url, timeout_s=0.3)
    store = Store(connection, keys, node="n1", lock_lease_s=30, result_ttl_s=60)
    await store.ping()
    admin = Redis.from_url(url)
    await admin.client_pause(1500)
    began = time.monotonic()
    with pytest.raises(StateUnavailable, match=r"0\.3 s|Timeout"):
        await store.session("7")
    assert time.monotonic() - began < 1
    await admin.client_unpause()
    await admin.aclose()
    assert await store.session("7") is None
    await connection.close()


async def test_a_cancellation_is_never_swallowed(url: str) -> None:
    """A shutdown, or a request past its deadline, would wait for ever: redis-py loses one that comes as it connects."""

    async def ping_for_ever(connection: Connection) -> None:
        while True:
            await connection.run(connection.redis.ping())

    for pause_s in [i * 0.0002 for i in range(40)]:
        connection = Connection(url, timeout_s=5)
        task = asyncio.create_task(ping_for_ever(connection))
        await asyncio.sleep(pause_s)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=2)
        assert done and task.cancelled(), pause_s
        await connection.close()


async def test_no_redis_is_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fault of the client library would reach the caller."""
    connection = Connection(f"unix://{tmp_path_factory.mktemp('x')}/none.sock", timeout_s=0.5)
    store = Store(connection, Keys(), node="n1", lock_lease_s=30, result_ttl_s=60)
    with pytest.raises(StateUnavailable):
        await store.ping()
    with pytest.raises(StateUnavailable):
        async with store.lock("7", 1):
            raise AssertionError
    await connection.close()


async def test_a_wrong_type_in_redis_is_an_error_of_ours(store: Store, connection: Connection, keys: Keys) -> None:
    """A script error would surface as an unknown exception."""
    await connection.run(connection.redis.set(keys.session("7"), "x"))
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await store.session("7")
