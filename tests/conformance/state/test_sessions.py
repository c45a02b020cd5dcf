"""Sessions and their editor history in Redis, as every replica sees them."""

import asyncio
import dataclasses
import secrets
import time

import pytest

from sandbox_server.lifecycle import SessionState, sources_of
from sandbox_server.records import ActionRecord
from sandbox_server.state import store as store_module
from sandbox_server.state.codec import action_of
from sandbox_server.state.connection import Connection
from sandbox_server.state.history import MAX_BYTES, MAX_TEXTS
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store

from .rollout import Open, action, do, in_flight, session


async def test_a_session_comes_back_as_it_was(store: Store) -> None:
    """Any field lost or of another type would break a restart."""
    record = session(cwd="/tmp/ü \udc80", talk_turns=2, actions=3, ended_at=1.25, cause="x")
    record = dataclasses.replace(record, timings_s={"start_create": 0.1, "action_run": 1e-05})
    await store.put_session(record)
    assert await store.session("7") == record
    assert await store.session("8") is None


async def test_a_move_changes_only_known_fields_of_known_sessions(store: Store) -> None:
    """A misspelt field, or a record brought to life by a change, would go unnoticed."""
    live = frozenset({"live"})
    assert not await store.move(session(), "live", live, cwd="/x") and not await store.touch("7")
    assert await store.session("7") is None
    await store.put_session(session())
    assert await store.move(session(), "live", live, cwd="/x")
    assert (await store.session("7")).cwd == "/x"
    for wrong in ({"cwdd": "/x"}, {"actions": "3"}):
        with pytest.raises(TypeError):
            await store.move(session(), "live", live, **wrong)


async def test_touch_moves_idle_time(store: Store) -> None:
    """A session in use would be ended as idle."""
    await store.put_session(session(touched_at=1.0))
    assert await store.touch("7")
    assert time.time() - (await store.session("7")).touched_at < 5


async def test_of_many_moves_at_once_one_wins(store: Store) -> None:
    """Two enders of one session would both capture its patch and remove its container."""
    await store.put_session(session())
    live = frozenset({"live"})
    won = await asyncio.gather(*(store.move(session(), "ending", live, end_reason=f"r{i}") for i in range(20)))
    assert sum(won) == 1
    record = await store.session("7")
    assert record.state == "ending" and record.end_reason == f"r{won.index(True)}"


async def test_a_session_that_went_on_elsewhere_is_not_moved(store: Store) -> None:
    """A node that stood still, and was taken for dead meanwhile, would end what goes on elsewhere."""
    before, live = session(), frozenset({"live"})
    await store.put_session(before)
    taken = dataclasses.replace(before, node="n2", container_id="beef")
    assert await store.adopt(taken, before)
    for stale in (before, dataclasses.replace(taken, node="n1"), dataclasses.replace(taken, container_id="c0ffee")):
        assert not await store.move(stale, "ending", live, end_reason="idle")
    assert await store.session("7") == taken
    assert await store.move(taken, "ending", live)


@pytest.mark.parametrize("change", ["actions", "state", "container_id"])
async def test_a_session_that_went_on_is_not_adopted(store: Store, change: str) -> None:
    """A node that was taken for dead is back: what it has acknowledged meanwhile would be lost."""
    before = session()
    await store.put_session(before)
    if change == "actions":
        await do(store, 1)
    else:
        assert await store.move(
            before, "ending" if change == "state" else "live", frozenset({"live"}), container_id="x"
        )
    now = await store.session("7")
    taken = dataclasses.replace(before, node="n2", container_id="beef")
    assert not await store.adopt(taken, before)
    assert await store.session("7") == now
    assert await store.adopt(taken, now) and await store.adopt(taken, now), "sent again, as its connection broke"


async def test_moves_follow_the_lifecycle(store: Store) -> None:
    """An ended session that comes back to life has no container."""
    await store.put_session(session())
    assert not await store.move(session(), SessionState.ENDED, sources_of(SessionState.ENDED))
    assert await store.move(session(), SessionState.ENDING, sources_of(SessionState.ENDING))
    assert await store.move(session(), SessionState.ENDING, sources_of(SessionState.ENDING))
    assert await store.move(session(), SessionState.ENDED, sources_of(SessionState.ENDED), ended_at=3.0)
    assert not await store.move(session(), SessionState.LOST, sources_of(SessionState.LOST))
    assert not await store.move(session("404"), SessionState.LOST, sources_of(SessionState.LOST))


async def test_live_lists_a_nodes_unended_sessions(store: Store) -> None:
    """The reaper would miss a session, or end one of another node."""
    await store.put_session(session("1"))
    await store.put_session(session("2"))
    await store.put_session(session("3", node="n2"))
    await store.put_session(session("4", state="ended"))
    await store.move(session("2"), "ending", frozenset({"live"}))
    assert [r.sid for r in await store.live("n1")] == ["1", "2"]
    assert [r.sid for r in await store.live()] == ["1", "2", "3"]
    assert await store.live("elsewhere") == []
    await store.move(session("2"), "lost", frozenset({"ending"}))
    assert [r.sid for r in await store.live("n1")] == ["1"]


async def test_a_list_makes_records_only_of_what_has_changed(store: Store, open_store: Open) -> None:
    """With 200 idle sessions the reaper's lists were a tenth of a server's CPU; an old record would end a session."""
    records = [session(f"{number:03}") for number in range(120)]
    for record in records:
        await store.put_session(record)
    first = await store.live("n1")
    assert first == records and await store.live("n1") == records
    other = await open_store("n2")
    await other.touch("003")
    await other.move(session("050"), "ending", frozenset({"live"}))
    await store.drop("119")
    again = {record.sid: record for record in await store.live("n1")}
    assert again["003"].touched_at > first[3].touched_at and again["050"].state == "ending" and "119" not in again
    assert again["004"] is first[4], "it was not read anew"


async def test_one_node_takes_over_a_session_of_a_dead_one(open_store: Open) -> None:
    """Two nodes would restore it, each in a container of its own, and the dead one would list it again."""
    dead, one, two = await open_store("n1"), await open_store("n2"), await open_store("n3")
    before, taken = session(), session(node="n2", container_id="new")
    await dead.put_session(before)
    async with dead.turn("7", in_flight(), wait_s=5):
        assert await one.adopt(taken, before)
        assert not await one.interrupted("7")
    assert not await two.adopt(session(node="n3"), before)
    assert await one.adopt(taken, before), "sent again"
    assert (await two.session("7")).container_id == "new"
    assert [found.node for found in await two.live()] == ["n2"] and await two.live("n1") == []


@pytest.mark.parametrize("n", [3, 300], ids=["by a script", "in pieces"])
async def test_a_rebuilt_session_knows_its_idempotency_keys(store: Store, n: int) -> None:
    """A retry after an outage of Redis would get the observation of another action, or run its command twice."""
    actions = [action(seq, idempotency_key=f"k{seq}" if seq != 2 else "") for seq in range(1, n + 1)]
    await store.rebuild(session(actions=n), actions)
    assert await store.actions("7") == actions
    for seq in (1, 3):
        async with store.turn("7", in_flight(), idempotency_key=f"k{seq}", wait_s=5) as turn:
            assert turn.stored == actions[seq - 1]


async def test_long_texts_of_a_journal_are_read_in_turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four actions of 30 MB hold the event loop for 0.8 s; their session's end reads them all."""
    actions = [action(seq, observation="é" * (1 << 20)) for seq in range(1, 5)]
    await store.rebuild(session(actions=4), actions)
    read, round_, rounds = action_of, 0, []

    def reading(text: bytes) -> ActionRecord:
        rounds.append(round_)
        return read(text)

    async def beside() -> None:
        nonlocal round_
        while True:
            round_ += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(store_module, "action_of", reading)
    others = asyncio.create_task(beside())
    assert await store.actions("7") == actions
    others.cancel()
    assert len(set(rounds)) == 4, "no other task had a turn between two of them"


async def test_an_ended_session_is_kept_for_its_ttl_and_its_undo_goes(
    store: Store, connection: Connection, keys: Keys
) -> None:
    """A reward asked for hours later would find no session; or undo texts would fill Redis for a week."""
    await store.put_session(session())
    await do(store, 1, key="k")
    await store.history("7", session().container_id).push("/a", "text")
    live_ttl = await connection.run(connection.redis.pttl(keys.session("7")))
    assert 3600_000 < live_ttl <= 4200_000 + 1000  # this process's clock may follow that of another test's Redis
    await store.move(session(), "ended", frozenset({"live"}))
    assert 590_000 < await connection.run(connection.redis.pttl(keys.session("7"))) <= 600_000
    assert 590_000 < await connection.run(connection.redis.pttl(keys.journal("7"))) <= 600_000
    assert await store.history("7", session().container_id).pop("/a") is None
    assert await store.actions("7") == [action(1, idempotency_key="k")]


async def test_every_key_of_a_session_ends_by_itself(store: Store, connection: Connection, keys: Keys) -> None:
    """A node that never comes back would leave its sessions in Redis for good."""
    await store.put_session(session())
    await do(store, 1, key="k")
    await store.history("7", session().container_id).push("/a", "text")
    async with store.turn("7", in_flight(), wait_s=5):
        pass
    for_good = {keys.live("n1"), keys.nodes, keys.boots, keys.pending("n1")}
    found = [name.decode() async for name in connection.redis.scan_iter(f"{keys.prefix}*")]
    assert len(found) == 4 + 6
    for name in set(found) - for_good:
        assert await connection.run(connection.redis.pttl(name)) > 0, name


async def test_undo_is_a_stack_per_path_and_session(store: Store) -> None:
    """An undo would restore another file's text."""
    for sid in ("7", "8"):
        await store.put_session(session(sid))
    one, two = store.history("7", session().container_id), store.history("8", session().container_id)
    for text in ("a1", "a2 ü\udc80", ""):
        await one.push("/a", text)
    await one.push("/b", "b1")
    await two.push("/a", "other")
    assert [await one.pop("/a") for _ in range(4)] == ["", "a2 ü\udc80", "a1", None]
    assert await one.pop("/b") == "b1" and await two.pop("/a") == "other"


async def test_exported_stacks_replace_what_is_there(store: Store) -> None:
    """A session that goes on from before its first edit undoes edits that it has not made."""
    history = store.history("7", session().container_id)
    empty = await history.export()
    await history.push("/a", "old")
    edited = await history.export()
    await history.push("/a", "new")
    await history.put(edited)
    assert (await history.pop("/a"), await history.pop("/a")) == ("old", None)
    await history.put(edited)
    await history.put(empty)
    assert await history.pop("/a") is None


async def test_a_container_that_the_session_has_left_changes_no_undo(store: Store) -> None:
    """A node that stood still pushed what an action replaced that the session has not made, or took a text away."""
    await store.put_session(session())
    late, now = store.history("7", session().container_id), store.history("7", "beef")
    await late.push("/a", "its own")
    await now.put(b"")  # the session is being made anew in another container; its actions are run again
    await now.push("/a", "now")
    await store.adopt(session(node="n2", container_id="beef"), session())
    await late.push("/a", "late")
    assert await late.pop("/a") == "now"
    assert [await now.pop("/a"), await now.pop("/a")] == ["now", None]


async def test_undo_forgets_the_oldest_past_its_bounds(store: Store, connection: Connection, keys: Keys) -> None:
    """One session would fill Redis."""
    await store.put_session(session())
    history = store.history("7", session().container_id)
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
    history = store.history("7", session().container_id)
    await history.push("/a", "old")
    await history.push("/a", secrets.token_bytes(MAX_BYTES + 1000).decode("latin-1"))
    assert await history.pop("/a") is None
