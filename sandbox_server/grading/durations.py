"""Expected duration of gradings, by instance: from this process's gradings, else from stored verdicts."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from sandbox_server.errors import InfrastructureError

_KEPT = 4096  # instances
_NEWEST = 0.5  # weight of the newest duration: one patch may make the tests slow, and the next one not

StoredSeconds = Callable[[str], Awaitable[float | None]]
"""instance_id -> duration of its last gradings in seconds; None if there were none."""


class Durations:
    """Seconds that a grading holds its slot, by instance."""

    def __init__(self, stored: StoredSeconds) -> None:
        self._stored = stored
        self._known: OrderedDict[str, float] = OrderedDict()

    async def expected(self, instance_id: str) -> float:
        """Expected seconds of the next grading; for an instance never graded, the average of the others."""
        if (known := self._known.get(instance_id)) is not None:
            return known
        try:
            stored = await self._stored(instance_id)
        except InfrastructureError:
            stored = None  # affects only the order
        if stored is None:
            return sum(self._known.values()) / len(self._known) if self._known else 0.0
        self._keep(instance_id, stored)
        return stored

    def learn(self, instance_id: str, seconds: float) -> None:
        """Record that a grading took `seconds`."""
        known = self._known.get(instance_id, seconds)
        self._keep(instance_id, known + _NEWEST * (seconds - known))

    def _keep(self, instance_id: str, seconds: float) -> None:
        self._known[instance_id] = seconds
        self._known.move_to_end(instance_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
