"""When a run that has used what it may is let in again."""

from collections.abc import Sequence

import pytest

from sandbox_server.errors import OverQuota
from sandbox_server.pool.spending import Spending, SpendingBounds
from sandbox_server.state.usage import Kind, Reading, Spent, Usage


class Used(Usage):
    """What Redis would say."""

    def __init__(self, **slices: list[tuple[float, float]]) -> None:
        self._found = slices
        self.asked = 0
        self.counted: list[tuple[str, Kind, float]] = []

    async def spent(self, account: str, kinds: object) -> dict[Kind, Spent]:
        self.asked += 1
        return {kind: Spent(self._found.get(kind.value, [])) for kind in Kind}

    async def count(self, readings: Sequence[Reading]) -> None:
        self.counted += [(reading.account, reading.kind, reading.shows_s) for reading in readings]


def test_the_wait_ends_when_enough_has_left_the_window() -> None:
    """A client that is told too short a wait asks again and again; too long a one leaves its GPUs idle."""
    spent = Spent([(600.0, 5.0), (60.0, 2.0), (120.0, 4.0)])
    assert spent.total_s == 11
    assert [spent.wait_s(bound) for bound in (12, 11, 9.5, 9, 6, 5.5, 5, 0.1)] == [0, 60, 60, 120, 120, 120, 600, 600]
    assert Spent([]).wait_s(0.1) == 0


async def test_each_kind_has_its_own_bound() -> None:
    """A run may compute much and grade little, or the other way round."""
    usage = Used(cpu=[(59.2, 100.0)], grading=[(30.0, 7.0)])
    for cpu_s, grading_s, named, wait_s in ((100, 0, "RUN_CPU_S", 60), (0, 7, "RUN_GRADE_S", 30), (99, 8, "CPU", 60)):
        with pytest.raises(OverQuota, match=named) as refused:
            await Spending(usage, SpendingBounds(cpu_s, grading_s, 3600)).check("a")
        assert refused.value.retry_after_s == wait_s
    await Spending(usage, SpendingBounds(101, 8, 3600)).check("a")
    asked = usage.asked
    await Spending(usage, SpendingBounds(0, 0, 3600)).check("a")
    assert usage.asked == asked, "without a bound a start must not wait for Redis"


async def test_gradings_are_counted_where_they_have_a_bound() -> None:
    """Each grading writes to Redis although nobody reads it; or the bound is of nothing."""
    for grading_s, counted in ((0, []), (8, [("a", Kind.GRADING, 2.5)])):
        usage = Used()
        spending = Spending(usage, SpendingBounds(100, grading_s, 3600))
        spending.add_grading("a", 2.5)
        await spending.close()
        assert usage.counted == counted
