"""What accounts have used, counted once, by all nodes together, for as long as the window lasts."""

import asyncio

from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.usage import Kind, Reading, Usage


def cpu(container: str, account: str, shows_s: float) -> Reading:
    return Reading(container, account, Kind.CPU, shows_s)


async def test_a_meter_counts_what_it_shows_beyond_its_last_reading(connection: Connection, keys: Keys) -> None:
    """A restarted server reads what its former one has counted; a retry comes twice; a killed sandbox begins at 0."""
    node, other = (Usage(connection, keys, window_s=3600) for _ in range(2))
    for readings in ([cpu("c1", "alice", 10), cpu("c2", "bob", 1)], [cpu("c1", "alice", 12.5)]):
        await node.count(readings)
        await other.count(readings)
    await node.count([Reading("g1", "alice", Kind.GRADING, 7)])
    spent = await other.spent("alice", list(Kind))
    assert (spent[Kind.CPU].total_s, spent[Kind.GRADING].total_s) == (12.5, 7)
    await other.count([cpu("c1", "alice", 2), cpu("c3", "alice", 0.25), cpu("c4", "alice", 0)])
    assert (await node.spent("alice", [Kind.CPU]))[Kind.CPU].total_s == 14.75
    assert (await node.spent("bob", [Kind.CPU]))[Kind.CPU].total_s == 1
    assert (await node.spent("carol", [Kind.CPU]))[Kind.CPU].total_s == 0
    await node.count([])


async def test_what_is_older_than_the_window_does_not_count(connection: Connection, keys: Keys) -> None:
    """A run would stay refused for ever, or Redis would grow with each slice."""
    usage = Usage(connection, keys, window_s=3)  # slices of 50 ms
    await usage.count([cpu("c1", "a", 1)])
    first = (await usage.spent("a", [Kind.CPU]))[Kind.CPU]
    assert first.total_s == 1 and 0 < first.wait_s(1) <= 3
    await asyncio.sleep(1.5)
    await usage.count([cpu("c1", "a", 5)])
    assert (await usage.spent("a", [Kind.CPU]))[Kind.CPU].total_s == 5
    await asyncio.sleep(1.7)
    assert (await usage.spent("a", [Kind.CPU]))[Kind.CPU].total_s == 4, "also if nothing is counted any more"
    await usage.count([cpu("c2", "a", 2)])
    left = (await usage.spent("a", [Kind.CPU]))[Kind.CPU]
    assert left.total_s == 6 and len(left.slices) == 2, left
    found = [key async for key in connection.redis.scan_iter(f"{keys.prefix}*")]
    ttls = [await connection.redis.ttl(key) for key in found]
    assert len(found) == 3 and all(0 < ttl <= 6 for ttl in ttls), (found, ttls)
