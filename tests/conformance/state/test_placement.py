"""Where a session starts, by what the nodes have told each other in a real Redis; the scores are a unit test."""

from collections.abc import Awaitable, Callable

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.errors import CapacityError, OwnedElsewhere
from sandbox_server.fleet.placement import Placement, Ring, Wanted, candidates
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.nodes import NodeRecord, Nodes

TASK = TaskInstance(instance_id="p__p-1", repo="p/p", sandbox=SandboxSpec(images=("i",)))
Fleet = Callable[..., Awaitable[Nodes]]


@pytest.fixture
def fleet(connection: Connection, keys: Keys) -> Fleet:
    """Nodes with so many used slots of four; returns what the first one knows."""

    async def made(**used: int) -> Nodes:
        all_nodes = [Nodes(connection, keys, node=name, boot=f"{name}/1", ttl_s=60) for name in used]
        for name, nodes in zip(used, all_nodes, strict=True):
            await nodes.beat(NodeRecord(node=name, url="", boot=f"{name}/1", slots=4, used=used[name]))
            await nodes.hold(["i"], [])
        return all_nodes[0]

    return made


async def test_a_node_that_does_not_answer_gets_nothing(fleet: Fleet) -> None:
    """Each start would wait for its connection, and come back."""
    nodes = await fleet(a=4, b=0, c=2)
    placement = Placement(nodes, node="a")
    assert await placement.choose(TASK) == "b"
    nodes.shun("b")
    assert await placement.choose(TASK) == "c"


async def test_a_node_that_drains_sends_its_starts_on(fleet: Fleet) -> None:
    """It is the emptiest, so it would get the next session, and never be empty."""
    placement = Placement(await fleet(a=0, b=3), node="a")
    await placement.settle(TASK)
    placement.draining = True
    with pytest.raises(OwnedElsewhere) as elsewhere:
        await placement.settle(TASK)
    assert elsewhere.value.node == "b"


async def test_the_last_node_that_drains_takes_nothing(fleet: Fleet) -> None:
    """It would never end."""
    placement = Placement(await fleet(a=0), node="a")
    placement.draining = True
    with pytest.raises(CapacityError, match="being drained") as refused:
        await placement.settle(TASK)
    assert refused.value.reason == "draining"


async def test_a_whole_group_counts_until_the_next_heartbeat(fleet: Fleet) -> None:
    """All groups of a batch go to the node that was emptiest at its last heartbeat."""
    placement = Placement(await fleet(a=4, b=0, c=1), node="a")
    assert [await placement.choose(TASK, 3) for _ in range(2)] == ["b", "c"]


async def test_a_large_fleet_is_looked_at_in_part_first(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more nodes than are looked at, a start would wait while others have room, or leave its own free node."""
    monkeypatch.setattr("sandbox_server.fleet.placement.LOOKED_AT", 1)
    nodes = await fleet(a=4, b=4, c=4, d=0)
    assert candidates(Ring("abcd"), Wanted(TASK.instance_id, await nodes.holders(["i"]))) <= set("abc")
    assert await Placement(nodes, node="a").choose(TASK) == "d"
    for own, chosen in (("a", "abc"), ("d", "d")):
        await fleet(a=3, b=3, c=3, d=0)
        assert await Placement(nodes, node=own).choose(TASK) in chosen
