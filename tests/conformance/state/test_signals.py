"""Word between servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.signals import Signals

_WITHIN_S = 60.0  # nothing else would tell them, however long they wait
Open = Callable[[str], Awaitable[tuple[Signals, list[str]]]]


@pytest.fixture
async def signals(connection: Connection, keys: Keys) -> AsyncIterator[Open]:
    opened: list[Signals] = []

    async def open_one(node: str) -> tuple[Signals, list[str]]:
        heard: list[str] = []
        one = Signals(connection, keys, node=node)
        await one.open(heard.append)
        opened.append(one)
        return one, heard

    yield open_one
    for one in opened:
        await one.close()


async def test_who_waits_is_told(signals: Open) -> None:
    """A reward request on another node would wait for its next look in SQL."""
    (one, _), (two, _) = await signals("n1"), await signals("n2")
    async with (
        one.listen_for_verdict("7") as told,
        one.listen_for_verdict("7") as also,
        one.listen_for_verdict("8") as other,
    ):
        await two.tell_graded("7")
        async with asyncio.timeout(_WITHIN_S):
            await told.wait()
            await also.wait()
        assert not other.is_set()
    async with one.listen_for_verdict("7") as again:
        await two.tell_graded("7")
        async with asyncio.timeout(_WITHIN_S):
            await again.wait()


async def test_who_is_asked_to_hurry_hears_it_alone(signals: Open) -> None:
    (one, _), (_, heard_by_two), (_, heard_by_three) = [await signals(f"n{i}") for i in (1, 2, 3)]
    await one.tell_awaited("7", "n2")
    for _ in range(6000):
        if heard_by_two:
            break
        await asyncio.sleep(0.01)
    assert (heard_by_two, heard_by_three) == (["7"], [])


async def test_after_all_connections_broke(signals: Open, connection: Connection) -> None:
    """After a restart of Redis each waiter would hear nothing until the server is restarted too."""
    one, _ = await signals("n1")
    async with one.listen_for_verdict("7") as told:
        await connection.send("CLIENT", "KILL", "TYPE", "pubsub")
        for _ in range(1000):
            await one.tell_graded("7")
            if told.is_set():
                break
            await asyncio.sleep(0.05)
        assert told.is_set()
