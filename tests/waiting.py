"""Waits for a condition, with a bound that a busy machine keeps too."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], Awaitable[object]], seconds: float = 60.0) -> None:
    """Fail with TimeoutError unless what `condition` gives becomes true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 -- processes and containers tell nobody
            await asyncio.sleep(0.05)
