"""What a heartbeat does besides: says which images are here, and ends a drained node."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server.fleet import heartbeat
from sandbox_server.fleet.heartbeat import Heartbeat, NodeRequests
from sandbox_server.state.nodes import NodeRecord

IMAGE = SimpleNamespace(name="i:latest", labels={})


class Node:
    """A node's heartbeat, and what it has told Redis."""

    def __init__(self) -> None:
        self.starts: Any = SimpleNamespace(used=0, waiting=0, parked=dict)
        self.gradings = 0
        names = ("draining", "beat", "announced", "leave", "clear_drain", "hold")
        self.nodes: Any = SimpleNamespace(**{name: AsyncMock(return_value=None) for name in names})
        self.nodes.beat.return_value = True
        runtime: Any = SimpleNamespace(images=SimpleNamespace(all=AsyncMock(return_value=[IMAGE])))
        self.heartbeat = Heartbeat(
            self.nodes,
            runtime,
            self.starts,
            SimpleNamespace(draining=False),  # type: ignore[arg-type]  # what it uses of a Placement
            NodeRecord("n", "", "n/1"),
            gradings=lambda: self.gradings,
            faults=dict,
            vitals=dict,
            requests=NodeRequests(AsyncMock(), AsyncMock()),
        )


async def test_a_draining_node_ends_after_its_gradings() -> None:
    """Its gradings would be cut off and begin anew on another node, while trainers wait for their rewards."""
    node = Node()
    node.nodes.draining.return_value = True
    node.gradings = 1
    await node.heartbeat.beat()
    assert not node.heartbeat.drained.is_set()
    node.starts.used, node.gradings = 1, 0
    await node.heartbeat.beat()
    assert not node.heartbeat.drained.is_set()
    node.starts.used = 0
    await node.heartbeat.beat()
    assert node.heartbeat.drained.is_set()
    node.nodes.leave.assert_awaited_once()


async def test_images_are_told_again_when_redis_may_have_lost_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All starts would go to other nodes, or pull the image there."""
    monkeypatch.setattr(heartbeat, "_IMAGES_EVERY_S", 0.0)
    node = Node()
    told = node.nodes.hold
    for _ in range(2):
        await node.heartbeat.beat()
    assert told.await_count == 1, "it has not changed"
    node.nodes.beat.return_value = False  # unknown to Redis
    await node.heartbeat.beat()
    assert told.await_count == 2
    node.nodes.beat.return_value = True
    monkeypatch.setattr(heartbeat, "_TELL_AGAIN_S", -1.0)
    await node.heartbeat.beat()
    assert told.await_count == 3
