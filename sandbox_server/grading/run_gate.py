"""Delays the runs of a certificate while gradings wait, for a bounded time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress


class RunGate:
    """Holds back the runs of one certificate."""

    def __init__(self, wait_until_uncrowded: Callable[[], Awaitable[None]] | None, most_s: float) -> None:
        """`wait_until_uncrowded` returns once no grading waits; None: runs never wait.

        `most_s`: limit in seconds on all waits together.
        """
        self._wait_until_uncrowded = wait_until_uncrowded
        self._most_s = most_s
        self._one = asyncio.Lock()  # so that the time of concurrent waits counts once
        self.waited_s = 0.0
        """Seconds that the runs have waited."""

    async def wait(self) -> None:
        """Wait until the next run may start."""
        if self._wait_until_uncrowded is None:
            return
        async with self._one:
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._most_s - self.waited_s):
                    await self._wait_until_uncrowded()
            self.waited_s += time.monotonic() - began
