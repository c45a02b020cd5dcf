"""Who ran out of memory: the container at its limit, or the host."""

import pytest

from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.memory import MemoryWatch


class Told:
    """Stands in for an engine: real hosts cannot be driven out of memory here."""

    def __init__(
        self, *kills: int | None, at_limit: bool = False, inside: int | None = None, neighbours: int = 0
    ) -> None:
        self.kills = list(kills)
        self.at_limit = at_limit
        self.inside = inside
        self.neighbours = neighbours

    def kills_on_host(self) -> int | None:
        return self.kills.pop(0)

    async def hit_memory_limit(self, container_id: str) -> bool:
        return self.at_limit

    async def kills_in(self, container_id: str) -> int | None:
        return self.inside

    async def kills_at_limits(self, *, since: float) -> int:
        return self.neighbours


async def killed(told: Told) -> bool:
    return await MemoryWatch(told, "c").killed_at_limit()  # type: ignore[arg-type]  # what it asks


async def test_own_limit_and_host_are_told_apart() -> None:
    """Our host's lack of memory must never look like the policy's fault, nor the other way round."""
    assert await killed(Told(3, 4, at_limit=True, inside=1)) is True
    assert await killed(Told(3, 3)) is False
    for told in (Told(3, 4), Told(3, 4, inside=1)):
        with pytest.raises(InfrastructureError, match="host"):
            await killed(told)


async def test_an_engine_elsewhere_is_not_a_kill() -> None:
    """Its host's counters cannot be read."""
    assert await killed(Told(None, None)) is False


async def test_a_neighbour_at_its_own_limit_is_not_the_host() -> None:
    """One session that runs into its limit again and again would make every grading beside it a fault of ours."""
    assert await killed(Told(3, 9, neighbours=6)) is False
    assert await killed(Told(3, 9, inside=0)) is False


async def test_a_neighbour_hides_no_lack_on_the_host() -> None:
    """One kill at a neighbour's limit made a kill for the host's memory the patch's fault."""
    for told in (Told(3, 5, inside=1, neighbours=1), Told(3, 5, neighbours=1)):
        with pytest.raises(InfrastructureError, match="host"):
            await killed(told)


async def test_a_lost_process_is_noticed_whatever_the_tests_made_of_it() -> None:
    """pytest says FAILED of a test whose child the host has killed, and exits with 1."""
    with pytest.raises(InfrastructureError, match="host"):
        await MemoryWatch(Told(3, 4, inside=1), "c").check_host()  # type: ignore[arg-type]  # what it asks
    for told in (Told(3, 4, inside=1, at_limit=True), Told(3, 4, inside=0), Told(3, 4)):
        await MemoryWatch(told, "c").check_host()  # type: ignore[arg-type]  # what it asks
