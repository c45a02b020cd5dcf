"""Which announced instances are prepared, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_server.errors import ImageUnavailable
from sandbox_server.pool import lookahead
from sandbox_server.pool.groups import Groups
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.sandbox.faults import Faults


class Ahead:
    """A lookahead on which the instances in `absent` have no image."""

    def __init__(self) -> None:
        self.absent = {"a"}
        self.wanted: list[str] = []
        self.faults = Faults()
        pool: Any = SimpleNamespace(want=lambda name, *about, **how: self.wanted.append(name))
        groups = Groups(first_guess=4, window_s=30)
        self.lookahead = Lookahead(self, pool, groups, wanted_s=60, faults=self.faults)  # type: ignore[arg-type]

    async def spec(self, instance: Any) -> str:
        if instance.instance_id in self.absent:
            raise ImageUnavailable("it is nowhere")
        return "spec"

    def add(self, *names: str) -> int:
        instances: list[Any] = [SimpleNamespace(instance_id=name) for name in names]
        return self.lookahead.add(instances)


async def test_a_failure_is_shown_until_the_instance_is_announced_again() -> None:
    """An image that has been pushed since would be shown as missing until the server's end."""
    ahead = Ahead()
    ahead.add("a", "b")
    for _ in range(2):
        await ahead.lookahead.prepare()
    assert [failure.instance_id for failure in ahead.lookahead.failures] == ["a"] and ahead.wanted == ["b"]
    ahead.absent.clear()
    ahead.add("a")
    assert ahead.lookahead.failures == []
    await ahead.lookahead.prepare()
    assert ahead.wanted == ["b", "a"]


def test_an_instance_that_waits_already_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that announces its next steps again would be told that they were dropped."""
    monkeypatch.setattr(lookahead, "QUEUE", 2)
    ahead = Ahead()
    assert ahead.add("a", "b", "c") == 2
    assert ahead.add("a", "c") == 1


async def test_nothing_is_prepared_while_something_is_wrong() -> None:
    """A pull onto a nearly full disk would break the sessions that run."""
    ahead = Ahead()
    ahead.add("b")
    ahead.faults.tell("disk", "full")
    preparing = asyncio.create_task(ahead.lookahead.prepare())
    for _ in range(5):
        await asyncio.sleep(0)
    assert ahead.lookahead.waiting == ["b"] and not preparing.done()
    ahead.faults.tell("disk", "")
    await preparing
    assert ahead.wanted == ["b"]
