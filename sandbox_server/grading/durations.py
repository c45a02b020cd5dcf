"""How long an instance's gradings take: from those of this process, else from stored verdicts."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from sandbox_server.errors import InfrastructureError

_KEPT = 4096  # instances
_NEWEST = 0.5  # weight of the last one: a patch may make the tests slow, the next one need not

StoredSeconds = Callable[[str], Awaitable[float | None]]
"""instance_id -> seconds that its last gradings took; None: there were none."""


class Durations:
    """Seconds a grading is in its slot, by instance."""

    def __init__(self, stored: StoredSeconds) -> None:
        self._stored = stored
        self._known: OrderedDict[str, float] = OrderedDict()

    async def expected(self, instance_id: str) -> float:
        """What the next one will take; for an instance never graded, what the others took on the average."""
        if (known := self._known.get(instance_id)) is not None:
            return known
        try:
            stored = await self._stored(instance_id)
        except InfrastructureError:
            stored = None  # only an order depends on it
        if stored is None:
            return sum(self._known.values()) / len(self._known) if self._known else 0.0
        self._keep(instance_id, stored)
        return stored

    def learn(self, instance_id: str, seconds: float) -> None:
        """A grading took `seconds`."""
        known = self._known.get(instance_id, seconds)
        self._keep(instance_id, known + _NEWEST * (seconds - known))

    def _keep(self, instance_id: str, seconds: float) -> None:
        self._known[instance_id] = seconds
        self._known.move_to_end(instance_id)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
