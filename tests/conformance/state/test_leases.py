"""Who may act on a session: one at a time, across servers and their deaths."""

import asyncio
import time
from typing import Any

import pytest

from sandbox_server.errors import SessionBusy, StateUnavailable
from sandbox_server.state import leases
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store
from tests.waiting import eventually

from .rollout import Open, session


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
            assert 0.15 < time.monotonic() - began < 10
    async with two.lock("7", 5), one.lock("8", 5):
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
    async with two.lock("7", 5):
        pass


async def test_a_held_lease_is_renewed(open_store: Open) -> None:
    """A long command would lose its session to another server in the middle."""
    one, two = await open_store("n1", lease_s=1.5), await open_store("n2", lease_s=1.5)
    async with one.lock("7", 5):
        with pytest.raises(SessionBusy):
            async with two.lock("7", 2.5):
                raise AssertionError


async def test_a_held_lease_that_ran_out_is_taken_again(open_store: Open, connection: Connection, keys: Keys) -> None:
    """After a pause of Redis or of the server, two servers could act on one session at once."""
    one, two = await open_store("n1", lease_s=0.6), await open_store("n2", lease_s=0.6)
    async with one.lock("7", 5):
        await connection.run(connection.redis.delete(keys.lock("7")))
        await eventually(lambda: connection.run(connection.redis.exists(keys.lock("7"))))
        with pytest.raises(SessionBusy):
            async with two.lock("7", 0.1):
                raise AssertionError


async def test_the_lease_of_another_nodes_session_is_not_taken_again(
    open_store: Open, connection: Connection, keys: Keys
) -> None:
    """A node that was taken for dead would keep its former session from its new node until an action of old ends."""
    one, two = await open_store("n1", lease_s=0.3), await open_store("n2", lease_s=0.3)
    await one.put_session(session())
    async with one.lock("7", 5):
        await one.adopt(session(node="n2", container_id="beef"), await one.session("7"))
        await connection.run(connection.redis.delete(keys.lock("7")))
        await asyncio.sleep(0.5)
        async with two.lock("7", 5):
            pass


async def test_a_dead_servers_lease_ends(open_store: Open) -> None:
    """The session of a host that never comes back would be locked for ever."""
    dead, other = await open_store("n1", lease_s=0.5), await open_store("n2", lease_s=0.5)
    held = dead.lock("7", 5)
    began = time.monotonic()
    await held.__aenter__()
    await dead.close()  # as a process that is gone: nothing renews, nothing releases
    async with other.lock("7", 60):
        assert time.monotonic() - began > 0.45, "it was taken before it ran out"
    await held.__aexit__(None, None, None)


async def test_a_restarted_node_frees_its_leases_at_once(open_store: Open) -> None:
    """After kill -9 and a restart every session would answer busy for half a minute."""
    former = await open_store("n1")
    held = former.lock("7", 5)
    await held.__aenter__()
    await former.close()
    present, other = await open_store("n1"), await open_store("n2")
    for store in (present, other):
        async with store.lock("7", 5):
            pass
    await held.__aexit__(None, None, None)


async def test_a_former_holder_frees_nothing_that_is_not_its_own(open_store: Open) -> None:
    """A server that woke late would release the lock that another one holds by now."""
    former = await open_store("n1")
    held = former.lock("7", 5)
    await held.__aenter__()
    present = await open_store("n1")
    async with present.lock("7", 5):
        await held.__aexit__(None, None, None)
        with pytest.raises(SessionBusy):
            async with (await open_store("n2")).lock("7", 0.1):
                raise AssertionError


async def test_a_former_holder_renews_nothing_that_is_not_its_own(open_store: Open) -> None:
    """A server that woke late would take the lock from the one that holds it by now, and both would act."""
    former = await open_store("n1")
    async with former.lock("7", 5):
        present = await open_store("n1")
        async with present.lock("7", 5):
            before = await present._connection.send("GET", present._keys.lock("7"))
            await former._leases._renew()
            assert await present._connection.send("GET", present._keys.lock("7")) == before


async def test_a_lease_given_up_while_it_is_taken_again_is_free(
    store: Store, connection: Connection, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session would stay locked, without a holder, until the lease runs out."""
    script = connection.script
    async with store.lock("7", 5):
        await connection.run(connection.redis.delete(keys.lock("7")))
        (lease,) = store._leases._held.values()

        async def meanwhile(which: Script, *arguments: Any) -> Any:
            answer = await script(which, *arguments)
            if which is leases._LOCK_AGAIN:
                store._leases.settle(lease)
            return answer

        monkeypatch.setattr(connection, "script", meanwhile)
        await store._leases._renew()
        assert not await connection.run(connection.redis.exists(keys.lock("7")))


async def test_a_lease_whose_release_was_lost_is_its_servers(store: Store, connection: Connection, keys: Keys) -> None:
    """The session would be busy until the lease runs out, although nobody works in it."""
    await connection.send("SET", keys.lock("7"), f"{store._leases.boot}/0123abcd", "PX", 60_000)
    async with store.lock("7", 1):
        pass


@pytest.mark.parametrize(("way", "waiters"), [("lock", 1), ("lock", 3), ("claim", 1)])
async def test_a_lease_whose_answer_was_lost_is_given_back(
    store: Store, connection: Connection, keys: Keys, monkeypatch: pytest.MonkeyPatch, way: str, waiters: int
) -> None:
    """It was taken, and nobody knows; or those who wait behind the failed request in this process wait for ever."""
    script, lost = connection.script, 0

    async def once_lost(which: Script, *arguments: Any) -> Any:
        nonlocal lost
        answer = await script(which, *arguments)
        if which is leases._LOCK and not lost:
            lost = 1
            raise StateUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(connection, "script", once_lost)

    async def work() -> None:
        if way == "claim":
            await store.claim("7")
        else:
            async with store.lock("7", 5):
                pass

    done = await asyncio.gather(*(work() for _ in range(waiters)), return_exceptions=True)
    assert [type(one) for one in done] == [StateUnavailable, *[type(None)] * (len(done) - 1)]
    assert not await connection.send("EXISTS", keys.lock("7"))


async def test_an_unknown_holder_keeps_its_lease(open_store: Open, connection: Connection, keys: Keys) -> None:
    """Redis has lost which boots are current, not the locks: each caller would take a lock that another holds."""
    one, two = await open_store("n1"), await open_store("n2")
    async with one.lock("7", 5):
        await connection.run(connection.redis.delete(keys.boots))
        with pytest.raises(SessionBusy):
            async with two.lock("7", 0.1):
                raise AssertionError


async def test_one_server_claims_at_a_time(open_store: Open) -> None:
    """Two nodes would grade the same patch, or one wait for a node that is gone."""
    one, two = await open_store("n1", lease_s=1.5), await open_store("n2", lease_s=1.5)
    claim = await one.claim("grade:x")
    assert claim is not None
    await asyncio.sleep(2.5)  # renewed
    assert await two.claim("grade:x") is None
    other = await two.claim("grade:y")
    assert other is not None
    await one.unclaim(claim)
    taken = await two.claim("grade:x")
    assert taken is not None
    await two.close()  # it dies: nobody renews
    await eventually(lambda: one.claim("grade:x"))
