"""Lets gradings go before the runs of a certificate, for a bounded time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress


class Turns:
    """The turns of one certificate's runs."""

    def __init__(self, uncrowded: Callable[[], Awaitable[None]] | None, most_s: float) -> None:
        """`uncrowded` returns once nothing goes first; None: nothing ever does. All turns wait `most_s` seconds."""
        self._uncrowded = uncrowded
        self._most_s = most_s
        self._one = asyncio.Lock()  # runs that wait beside each other wait once
        self.waited_s = 0.0
        """Seconds that the runs have waited."""

    async def next(self) -> None:
        """Return when a run may start."""
        if self._uncrowded is None:
            return
        async with self._one:
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._most_s - self.waited_s):
                    await self._uncrowded()
            self.waited_s += time.monotonic() - began
