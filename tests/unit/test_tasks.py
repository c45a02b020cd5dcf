"""Loops continue after failed rounds and log them; sets of tasks log failures and end within a time limit."""

import asyncio
import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from sandbox_server.errors import StateUnavailable
from sandbox_server.tasks import FAILING_AFTER, Loops, TaskSet


async def until(condition: Callable[[], object]) -> None:
    """Fail unless `condition` comes true within 5 s."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(condition)


@pytest.mark.parametrize("error", [RuntimeError("broke"), StateUnavailable("away")])
async def test_a_failed_round_is_followed_by_the_next(error: Exception) -> None:
    """One unexpected exception silently ends the loop."""
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise error

    loops = Loops()
    with capture_logs() as logs:
        async with loops.every(0.01, work, name="reaper"):
            await until(lambda: rounds >= 3)
    assert [(entry["loop"], entry["log_level"]) for entry in logs] == [
        ("reaper", "error" if isinstance(error, RuntimeError) else "warning")
    ]
    assert not loops.names, "a loop that has ended is not known any more"


async def test_a_loop_that_fails_again_and_again_is_named_until_it_works() -> None:
    """A loop that never works looks like one that does."""
    broken = True

    async def work() -> None:
        if broken:
            raise ValueError("no such column")

    loops = Loops()
    async with loops.every(0.005, work, name="drift"):
        await until(lambda: loops.failing())
        told = loops.failing()["drift"]
        assert told.endswith("times in a row: ValueError: no such column")
        assert int(told.split()[1]) >= FAILING_AFTER
        broken = False
        await until(lambda: not loops.failing())


async def test_a_stopped_loop_may_finish_its_round() -> None:
    """A transaction that is cut off at shutdown holds up the next one."""
    ended = asyncio.Event()
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(0.1)
        ended.set()

    loop = Loops().start(60, work, name="journal")
    await begun.wait()
    await loop.stop(finish_s=5)
    assert ended.is_set()
    began = time.monotonic()
    for lead_s in (0.0, 0.01):  # before its first pause, and in it
        waiting = Loops().start(60, work, name="journal", at_once=False)
        await asyncio.sleep(lead_s)
        await waiting.stop(finish_s=5)
    assert time.monotonic() - began < 4, "a pause is no round: it ends at once"


async def test_two_loops_of_one_name_are_a_defect() -> None:
    """One would hide the other's failures."""
    loops = Loops()
    async with loops.every(60, asyncio.Event().wait, name="pool"):
        with pytest.raises(ValueError, match="pool"):
            loops.start(60, asyncio.Event().wait, name="pool")


async def test_a_task_that_fails_is_logged_under_its_set() -> None:
    """A task that nobody awaits fails without a log line."""
    tasks = TaskSet("rewards")

    async def work() -> None:
        raise RuntimeError("broke")

    with capture_logs() as logs:
        task = tasks.start(work(), name="submit-7")
        await asyncio.wait({task})
        await asyncio.sleep(0)
    assert [(entry["tasks"], entry["task"]) for entry in logs] == [("rewards", "submit-7")]
    assert len(tasks) == 0


async def test_settle_waits_for_what_tasks_start_and_not_for_ever() -> None:
    """A removal that another task begins at shutdown is left, or one that hangs holds the shutdown up."""
    tasks, done = TaskSet("removals"), []

    async def second() -> None:
        done.append(2)

    async def first() -> None:
        await asyncio.sleep(0.02)
        tasks.start(second())

    tasks.start(first())
    await tasks.settle(5)
    assert done == [2]
    hanging = tasks.start(asyncio.sleep(60))
    with capture_logs() as logs:
        await tasks.settle(0.05)
    assert logs[0]["count"] == 1
    await tasks.cancel()
    assert hanging.cancelled()


async def test_the_failure_of_an_awaited_task_is_its_callers() -> None:
    """An error that a request answers as intended is logged as a defect."""
    tasks = TaskSet("requests")

    async def work() -> None:
        raise StateUnavailable("away")

    with capture_logs() as logs:
        task = tasks.start(work(), awaited=True)
        with pytest.raises(StateUnavailable):
            await task
        await asyncio.sleep(0)
    assert not logs and len(tasks) == 0
