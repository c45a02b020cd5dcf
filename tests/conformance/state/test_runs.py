"""Whose runs are, until when they live, and what a start was answered with."""

import asyncio

import pytest

from sandbox_server import clock
from sandbox_server.errors import RunOfAnother
from sandbox_server.fleet.runs import Runs
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.logouts import Logouts
from sandbox_server.state.runs import RunState


@pytest.fixture
def state(connection: Connection, keys: Keys) -> RunState:
    return RunState(connection, keys, node="n1")


def runs_of(state: RunState) -> Runs:
    """Another process's; what it ends is no part of these tests."""
    return Runs(None, state, None, node="n1", end_detached=None)


async def test_a_key_touches_runs_of_its_own_only(state: RunState) -> None:
    """With its own key one trainer could end another's run."""
    runs, others = runs_of(state), runs_of(state)
    await runs.started("grpo", "alice")
    with pytest.raises(RunOfAnother):
        await others.started("grpo", "bob")
    await others.started("shared", "")
    await others.check("grpo", "alice")
    await others.started("grpo", "")
    for run in ("grpo", "shared"):
        with pytest.raises(RunOfAnother, match=run):
            await others.check(run, "bob")
        await runs.check(run, "")  # a key without a name is an operator's
    await runs.check("new", "bob")  # nobody's so far: at its first start a trainer finds nothing to end
    with pytest.raises(RunOfAnother):
        await runs.check("new", "alice")


async def test_a_run_of_a_keys_own_name_is_the_keys(state: RunState) -> None:
    """Whoever used the name first, as a header, could end all that the key starts without one."""
    runs = runs_of(state)
    await runs.started("alice", "bob")
    await runs.started("alice", "alice")
    await runs.check("alice", "alice")
    with pytest.raises(RunOfAnother):
        await runs.check("alice", "bob")


async def test_a_lease_lapses_only_before_eyes_that_were_open(state: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time in which nobody could renew it, every run would end."""
    ends_at = await state.keep("a", 60)
    await state.keep("b", 600)
    now = clock.now()
    assert ends_at == pytest.approx(now + 60, abs=5)
    assert await state.expired_leases(healthy_for_s=1e9) == {}
    monkeypatch.setattr(clock, "now", lambda: now + 100)
    assert await state.expired_leases(healthy_for_s=59) == {}
    assert await state.expired_leases(healthy_for_s=61) == {"a": ends_at}
    await state.keep("a", 60)
    assert await state.expired_leases(healthy_for_s=1e9) == {}
    assert await state.release("a") and not await state.release("a")
    monkeypatch.setattr(clock, "now", lambda: now + 30 * 86400)
    assert await state.expired_leases(healthy_for_s=1e9) == {}, "it is kept for ever"


async def test_a_start_has_one_answer(state: RunState) -> None:
    """Two attempts of one start would give two sessions."""
    assert await state.started("k") is None
    answers = await asyncio.gather(*(state.answer("k", str(sid)) for sid in range(8)))
    assert len(set(answers)) == 1 and await state.started("k") == answers[0]
    await state.forget("k", "of another")
    assert await state.started("k") == answers[0]
    await state.forget("k", answers[0])
    assert await state.answer("k", "9") == "9"


async def test_a_start_that_was_given_twice_is_not_given_back(state: RunState) -> None:
    """A client hangs up and asks again at once: it gets a session that is being closed for the first request."""
    assert await state.answer("k", "1") == await state.answer("k", "1") == "1", "sent again, as its connection broke"
    assert await state.give_back("k", "1") and await state.give_back("k", "1")
    assert await state.started("k") is None, "the next request would get a session that is being closed"
    for again in (state.started("taken"), state.answer("taken", "2")):
        await state.answer("taken", "1")
        assert await again == "1"
        assert not await state.give_back("taken", "1") and await state.started("taken") == "1"
        await state.forget("taken", "1")
    assert await state.give_back("taken", "1")


async def test_an_ended_login_is_known_until_its_time_is_over(connection: Connection, keys: Keys) -> None:
    """A copied cookie outlives its login, or the notes of all logins stay for ever."""
    logouts, others = Logouts(connection, keys), Logouts(connection, keys)
    await logouts.add("one", left_s=58.2)
    assert await others.has("one") and not await others.has("two")
    (key,) = await connection.send("KEYS", keys.logout("*"))
    assert 0 < await connection.send("PTTL", key) <= 59_000 and b"one" not in key
    await logouts.add("short", left_s=0.2)  # rounded down to 0 s it would be refused
    found = await connection.send("KEYS", keys.logout("*"))
    assert len(found) == 2 and all([await connection.send("PTTL", one) > 0 for one in found])


async def test_word_for_another_node(state: RunState, connection: Connection, keys: Keys) -> None:
    """The sessions of a run on other nodes would live on."""
    await RunState(connection, keys, node="n2").ask_to_end("n1", ["1", "2"])
    assert await state.take_end_requests() == ["1", "2"] and await state.take_end_requests() == []
