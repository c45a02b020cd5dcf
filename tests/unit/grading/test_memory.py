"""Who ran out of memory: the container at its limit, or the host."""

import pytest

from sandbox_server.errors import InfrastructureError
from sandbox_server.grading.memory import MemoryWatch


class Told:
    """Stands in for an engine: real hosts cannot be driven out of memory here."""

    def __init__(self, *kills: int | None, at_limit: bool = False, neighbour: bool = False) -> None:
        self.kills = list(kills)
        self.at_limit = at_limit
        self.neighbour = neighbour

    def kills_on_host(self) -> int | None:
        return self.kills.pop(0)

    async def hit_its_memory(self, container_id: str) -> bool:
        return self.at_limit

    async def limits_hit(self, *, since: float) -> bool:
        return self.neighbour


async def killed(told: Told) -> bool:
    return await MemoryWatch(told, "c").killed_at_limit()  # type: ignore[arg-type]  # what it asks


async def test_own_limit_and_host_are_told_apart() -> None:
    """Our host's lack of memory must never look like the policy's fault, nor the other way round."""
    assert await killed(Told(3, 4, at_limit=True)) is True
    assert await killed(Told(3, 3)) is False
    with pytest.raises(InfrastructureError, match="host"):
        await killed(Told(3, 4))


async def test_an_engine_elsewhere_is_not_a_kill() -> None:
    """Its host's counters cannot be read."""
    assert await killed(Told(None, None)) is False


async def test_a_neighbour_at_its_own_limit_is_not_the_host() -> None:
    """One session that runs into its limit again and again would make every grading beside it a fault of ours."""
    assert await killed(Told(3, 9, neighbour=True)) is False
