"""Long work on the event loop lets others have a turn."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from sandbox_server.slices import sliced

T = TypeVar("T")


def _slowly(count: int) -> "list[int]":
    began = time.thread_time()
    while time.thread_time() - began < 0.001:
        pass
    return [count]


async def _beside(work: Awaitable[T]) -> tuple[T, int]:
    """What `work` gives, and how many rounds of the event loop another task had meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    made = await work
    beside.cancel()
    return made, turns


async def test_others_have_a_turn_after_each_slice() -> None:
    """An action would wait for a whole page."""
    made, turns = await _beside(sliced(_slowly(count) for count in range(20)))
    assert made == [[count] for count in range(20)]
    assert turns >= 20


async def test_works_side_by_side_take_turns() -> None:
    """Four pages at once would make an action wait for four slices in each round of the event loop."""
    works = asyncio.gather(*(sliced(_slowly(count) for count in range(10)) for _ in range(4)))
    made, turns = await _beside(works)
    assert made == [[[count] for count in range(10)]] * 4
    assert turns >= 40
