"""Which gradings a node takes: the decisions alone, which `tests/live/test_grading_jobs.py` plays with real nodes."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server.fleet.balancer import BalancerConfig, GradingBalancer
from sandbox_server.state.nodes import Holders, Liveness, NodeRecord


class Service:
    """Two nodes, `me` and `other`, and what a balancer asks about their gradings."""

    def __init__(self, **other: Any) -> None:
        self.other = NodeRecord("other", "", "other/1", grade_slots=4, **other)
        self.here = frozenset({"me", "other"})
        self.jobs: Any = SimpleNamespace(
            helped=set(),
            tend=AsyncMock(),
            nodes=AsyncMock(return_value={"me", "other"}),
            waiting=AsyncMock(return_value=(3, 0)),
            submitted=AsyncMock(return_value={"1"}),
            **{name: AsyncMock() for name in ("help", "hold", "leave", "forget", "submit")},
        )
        self.rewards: Any = SimpleNamespace(
            accepting=True,
            alone=False,
            idle=True,
            well=True,
            room=lambda: True,
            known=lambda sid: False,
            work=AsyncMock(return_value=True),
        )
        self.nodes: Any = SimpleNamespace(
            alive=self._alive,
            liveness=AsyncMock(return_value=Liveness.DEAD),
            holders=AsyncMock(side_effect=lambda images: Holders(self.here, frozenset())),
        )
        self.store: Any = SimpleNamespace(claim=AsyncMock(return_value="claim"))
        self.sessions = {sid: SimpleNamespace(node="gone", instance_id="a__b-1") for sid in ("1", "2")}
        self.history: Any = SimpleNamespace(
            ungraded=AsyncMock(return_value=["1", "2"]), session=AsyncMock(side_effect=self.sessions.get)
        )
        self.instances: Any = SimpleNamespace(
            by_id=AsyncMock(return_value=SimpleNamespace(sandbox=SimpleNamespace(image_keys=("image",))))
        )
        self.balancer = GradingBalancer(
            self.jobs,
            self.rewards,
            self.nodes,
            self.store,
            self.history,
            self.instances,
            BalancerConfig("me", period_s=0, recover_period_s=1e9, kept_s=1e9),
        )

    async def _alive(self) -> list[NodeRecord]:
        return [NodeRecord("me", "", "me/1", grade_slots=4), self.other]

    async def helps(self) -> bool:
        self.jobs.help.reset_mock()
        await self.balancer.look()
        return bool(self.jobs.help.await_count)


@pytest.mark.parametrize(("gradings", "idle", "helps"), [(4, True, True), (4, False, False), (3, True, False)])
async def test_a_full_node_is_helped_by_an_idle_one(gradings: int, idle: bool, helps: bool) -> None:
    """A busy helper's own gradings would wait; a node with room needs no help."""
    service = Service(gradings=gradings)
    service.rewards.idle = idle
    assert await service.helps() is helps


async def test_a_node_whose_heartbeat_has_stopped_is_helped_although_it_had_room() -> None:
    """It may be shutting down, and has given its jobs back: they would wait until it counts as dead."""
    service = Service(gradings=0, beats=7)
    assert not await service.helps()
    assert await service.helps(), "the same beat for two periods (of 0 s)"
    service.other = NodeRecord("other", "", "other/1", grade_slots=4, beats=8)
    assert not await service.helps()


@pytest.mark.parametrize(
    ("stream_of", "holders", "takes"),
    [
        ("other", {"me", "other"}, True),
        ("other", {"other"}, False),
        ("other", {"far"}, True),  # no live node has it: one must pull it
        ("me", {"other"}, True),
    ],
)
async def test_another_nodes_job_is_left_to_a_node_with_the_image(
    stream_of: str, holders: set[str], takes: bool
) -> None:
    """The image would be pulled on every node, or a job that nobody can begin at once would be taken by none."""
    service = Service()
    await service.balancer.look()
    service.here = frozenset(holders)
    assert await service.balancer.work("1", stream_of) is takes
    assert service.rewards.work.await_count == takes


async def test_a_grading_without_a_job_goes_to_a_live_node() -> None:
    """The stream of a node that is gone for good is read only by helpers; one that has a job would run twice."""
    service = Service()
    await service.balancer.look()
    await service.balancer.recover()
    service.jobs.submit.assert_awaited_once_with("2", "me", again=True)
    service.sessions["2"].node = "other"
    await service.balancer.recover()
    service.jobs.submit.assert_awaited_with("2", "other", again=True)
