"""One action: its turn, what it leaves behind, and what it costs."""

import asyncio
import time
from typing import Any

import pytest

from sandbox_server.errors import SessionBusy, StateUnavailable
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.pipeline import Pipeline
from sandbox_server.state.store import Store

from .rollout import Open, action, do, in_flight, left_in_flight, session


async def test_an_action_is_written_down_and_frees_the_session(store: Store) -> None:
    """Counters, cwd or idle time would be those of another moment."""
    await store.put_session(session())
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        assert turn.may_run and turn.record.sid == "7" and turn.stored is None and turn.interrupted is None
        assert await left_in_flight(store, "7") == in_flight()
        await turn.acknowledge(action(), cwd="/x", talk_turns=2, timings_s={})
        assert not turn.may_run
        async with store.lock("8", 1):
            pass
    record = await store.session("7")
    assert (record.actions, record.cwd, record.talk_turns, record.touched_at) == (1, "/x", 2, 5.5)
    assert await left_in_flight(store, "7") is None
    assert await store.actions("7") == [action()]


async def test_a_notice_is_told_once(store: Store) -> None:
    """A policy is told before each observation that its host died an hour ago."""
    await store.put_session(session(notice="[The host died.]", differences=2))
    await do(store, 1)
    record = await store.session("7")
    assert record is not None and (record.notice, record.differences) == ("", 0)


@pytest.mark.parametrize("content", ["", "\0", "\ud800", "ü😀", "x" * 1_000_000])
async def test_any_text_survives_the_journal(store: Store, content: str) -> None:
    """What a policy writes would break the journal."""
    await store.put_session(session())
    async with store.turn("7", in_flight(content=content), wait_s=5) as turn:
        assert (await left_in_flight(store, "7")).content == content
        await turn.acknowledge(action(content=content, observation=content), cwd="/", talk_turns=0, timings_s={})
    assert (await store.actions("7"))[0].observation == content


async def test_a_large_text_for_no_session_is_not_sent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of 31 MB for sids that nobody has kept the one connection busy: others' actions took 25 s."""
    sent: list[int] = []
    exchange = Pipeline.exchange

    async def counted(self: Pipeline, command: bytes, count: int = 1) -> Any:
        sent.append(len(command))
        return await exchange(self, command, count)

    monkeypatch.setattr(Pipeline, "exchange", counted)
    async with store.turn("7", in_flight(content="x" * (2 << 20)), wait_s=5) as turn:
        assert turn.record is None and not turn.may_run
    assert sent and max(sent) < 10_000
    await store.put_session(session())
    async with store.turn("7", in_flight(content="x" * (2 << 20)), wait_s=5) as turn:
        assert turn.may_run


async def test_a_known_key_gives_the_stored_action(store: Store) -> None:
    """A retried request would run its command twice."""
    await store.put_session(session())
    await do(store, 1, key="k1")
    await do(store, 2, key="k2")
    async with store.turn("7", in_flight(), idempotency_key="k1", wait_s=5) as turn:
        assert not turn.may_run and turn.stored == action(1, idempotency_key="k1")
    await store.move(session(), "ended", frozenset({"live"}))
    async with store.turn("7", in_flight(), idempotency_key="k2", wait_s=5) as turn:
        assert turn.stored.seq == 2


async def test_what_an_action_leaves_ends_with_its_session(store: Store, connection: Connection, keys: Keys) -> None:
    """Redis keeps the keys of all sessions of all time."""
    await store.put_session(session())
    await do(store, 1, key="k1")
    async with store.turn("7", in_flight("cut off"), wait_s=5):
        pass
    async with store.turn("7", in_flight("taken back"), wait_s=5) as turn:
        await turn.withdraw("7")
    assert await left_in_flight(store, "7") == in_flight("cut off")
    names = (keys.session, keys.journal, keys.replies, keys.in_flight)
    left = [await connection.send("PTTL", name("7")) for name in names]
    assert min(left) > 0 and max(left) - min(left) < 5000


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
    assert await left_in_flight(store, "7") is None and await left_in_flight(store, "404") is None


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


async def test_nothing_is_acknowledged_beside_a_restore(open_store: Open, connection: Connection, keys: Keys) -> None:
    """A node that stood still is back while another one restores its session without the action: it would be lost."""
    former, other = await open_store("n1"), await open_store("n2")
    await former.put_session(session())
    async with former.turn("7", in_flight("late"), wait_s=5) as late:
        await connection.send("DEL", keys.lock("7"))  # as an expiry
        async with other.lock("7", 5):
            with pytest.raises(StateUnavailable):
                await late.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    assert await other.actions("7") == [] and (await other.session("7")).actions == 0


async def test_texts_come_back_as_they_were(store: Store) -> None:
    """A text that has no encoding, such as a cut file name, breaks the action, or its session's restore."""
    text = 'é \U0001f600 \ud800 \udc80 \0 \\ " \n'
    done = action(content=text, observation=text)
    await store.put_session(session())
    async with store.turn("7", in_flight(text), wait_s=5) as turn:
        await turn.acknowledge(done, cwd=text, talk_turns=0, timings_s={})
    assert await store.actions("7") == [done] and (await store.session("7")).cwd == text
    many = [action(seq, content=text, observation=text) for seq in range(1, 300)]
    for actions in (many[:3], many):
        await store.rebuild(session(actions=len(actions)), actions, to_sql=True)
        assert await store.actions("7") == actions


async def test_a_node_whose_session_was_taken_over_acknowledges_nothing(open_store: Open) -> None:
    """It was cut off and declared dead: the action that it ran in its old container would enter the journal."""
    former, present = await open_store("n1"), await open_store("n2")
    await former.put_session(session())
    async with former.turn("7", in_flight(), wait_s=5) as late:
        assert await present.adopt(session(node="n2"), session())
        with pytest.raises(StateUnavailable):
            await late.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    assert await present.actions("7") == [] and (await present.session("7")).actions == 0


async def test_no_turn_on_a_session_of_another_node(open_store: Open) -> None:
    """Its action would run without the session's container, and hold up the node that has it."""
    owner, other = await open_store("n1"), await open_store("n2")
    await owner.put_session(session())
    async with other.turn("7", in_flight(), wait_s=5) as turn:
        assert turn.record.node == "n1" and not turn.may_run
        await do(owner, 1)
    assert await left_in_flight(owner, "7") is None


@pytest.mark.parametrize("end", ["acknowledge", "withdraw"])
async def test_a_late_turn_ends_nothing_of_its_successor(open_store: Open, end: str) -> None:
    """Two requests would act at once, and the successor's action would not count as interrupted if it died."""
    former = await open_store("n1")
    await former.put_session(session())
    async with former.turn("7", in_flight("old"), wait_s=5) as late:
        present, other = await open_store("n1"), await open_store("n2")
        async with present.turn("7", in_flight("new"), wait_s=5) as turn:
            if end == "acknowledge":
                with pytest.raises(StateUnavailable):
                    await late.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
            else:
                await late.withdraw("7")
                assert await left_in_flight(present, "7") == in_flight("new")
            with pytest.raises(SessionBusy):
                async with other.lock("7", 0.1):
                    pass
            assert turn.may_run


async def test_an_exchange_that_is_sent_twice_counts_once(
    store: Store, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke before the reply: an action would be journaled twice, or be its own interruption."""
    script = connection.script

    async def twice(*args: object) -> object:
        await script(*args)
        return await script(*args)

    monkeypatch.setattr(connection, "script", twice)
    await store.put_session(session())
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        assert turn.may_run and turn.interrupted is None
        await turn.acknowledge(action(), cwd="/", talk_turns=0, timings_s={})
    assert await store.actions("7") == [action()] and (await store.session("7")).actions == 1


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
        *("get", "set", "del", "hget", "hmget", "hset", "hgetall", "lindex", "rpush", "xadd", "pttl", "pexpire")
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


async def test_an_actions_seconds_are_kept(store: Store) -> None:
    """What a rollout waited for would be known to nobody once it is over."""
    await store.put_session(session(timings_s={"start_create": 0.5}))
    async with store.turn("7", in_flight(), wait_s=5) as turn:
        summed = {**turn.record.timings_s, "action_run": 0.25}
        await turn.acknowledge(action(), cwd="/", talk_turns=0, timings_s=summed)
    assert (await store.session("7")).timings_s == {"start_create": 0.5, "action_run": 0.25}


async def test_a_withdrawn_turn_leaves_nothing(store: Store) -> None:
    """SQL was down for a moment: the next action would be told of an interruption that was none."""
    await store.put_session(session())
    async with store.turn("7", in_flight("one"), wait_s=5) as turn:
        await turn.withdraw("7")
        assert not turn.may_run and await left_in_flight(store, "7") is None
        async with store.turn("8", in_flight("two"), wait_s=5):
            pass
    async with store.turn("7", in_flight("two"), wait_s=5) as turn:
        assert turn.interrupted is None and turn.may_run
    async with store.turn("7", in_flight("three"), wait_s=5) as turn:
        assert turn.interrupted == in_flight("two")
        await turn.withdraw("7")
    async with store.turn("7", in_flight("four"), wait_s=5) as turn:
        assert turn.interrupted == in_flight("two")


async def test_a_session_that_is_ending_does_not_keep_an_action_waiting(store: Store) -> None:
    """A patch takes up to two minutes, and the policy's last words would wait for it to hear that it is over."""
    await store.put_session(session())
    async with store.lock("7", 5):
        await store.move(session(), "ending", frozenset({"live"}))
        began = time.monotonic()
        async with store.turn("7", in_flight(), wait_s=30) as turn:
            assert turn.record.state == "ending" and not turn.may_run
        assert time.monotonic() - began < 15
