"""Faults that keep this node from taking new work: an engine that does not answer, or a nearly full or broken disk.

The monitor of each part reports and clears its fault here; starts and gradings check for faults before they begin. Work
under way is not stopped: actions and session ends are still tried.
"""

import asyncio

from sandbox_server import telemetry
from sandbox_server.errors import CapacityError

log = telemetry.logger(__name__)


class Faults:
    """Present faults: reason -> what is wrong and what to do.

    Reasons: daemon (the engine), disk (the engine's), data (the disk of SANDBOX_DATA_DIR).
    """

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
