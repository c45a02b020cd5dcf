"""Faults that keep this node from taking new work: an engine that does not answer, a disk that is nearly full.

Whoever monitors a part reports its faults here and clears them; starts and gradings check here before they begin.
Work under way is not stopped: actions and session ends still try.
"""

import asyncio

from sandbox_server import telemetry
from sandbox_server.errors import CapacityError

log = telemetry.logger(__name__)


class Faults:
    """Present faults: reason (daemon, disk) -> what is wrong and what to do."""

    def __init__(self) -> None:
        self._present: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def present(self) -> dict[str, str]:
        """All present faults."""
        return dict(self._present)

    def tell(self, reason: str, text: str) -> None:
        """Report the fault `text` under `reason`; "" clears it."""
        telemetry.NODE_FAULT.labels(reason).set(bool(text))
        if text and reason not in self._present:
            log.error("this node takes no new work", reason=reason, error=text)
        if text:
            self._present[reason] = text
        elif self._present.pop(reason, None) is not None:
            log.info("this node takes new work again", reason=reason)
            self._changed.set()
            self._changed = asyncio.Event()

    def check(self) -> None:
        """Raise CapacityError if there is a fault."""
        for reason, text in self._present.items():
            raise CapacityError(text, reason=reason)

    async def gone(self) -> None:
        """Wait until there is no fault."""
        while self._present:
            await self._changed.wait()
