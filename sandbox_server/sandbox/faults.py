"""What keeps this node from taking new work: an engine that does not answer, a disk that is nearly full.

Whoever watches a part says here what is wrong with it, and takes it back; starts and gradings ask here before they
begin. What is under way already is not held up by it: actions and ends still try.
"""

import asyncio

from sandbox_server import telemetry
from sandbox_server.errors import CapacityError

log = telemetry.logger(__name__)


class Faults:
    """Reason (daemon, disk) -> what is wrong and what to do, as long as it lasts."""

    def __init__(self) -> None:
        self._present: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def present(self) -> dict[str, str]:
        """All that there are now."""
        return dict(self._present)

    def tell(self, reason: str, text: str) -> None:
        """`text` is wrong from now on; "" takes back what was told of `reason`."""
        telemetry.NODE_FAULT.labels(reason).set(bool(text))
        if text and reason not in self._present:
            log.error("nothing new is begun", reason=reason, error=text)
        if text:
            self._present[reason] = text
        elif self._present.pop(reason, None) is not None:
            log.info("new work is begun again", reason=reason)
            self._changed.set()
            self._changed = asyncio.Event()

    def check(self) -> None:
        """Raise CapacityError while there is any."""
        for reason, text in self._present.items():
            raise CapacityError(text, reason=reason)

    async def gone(self) -> None:
        """Wait until there is none."""
        while self._present:
            await self._changed.wait()
