"""Bodies that flow: bounded where they stand still. No plugin, as its name says."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

IDLE_S = 120.0
"""Seconds that a body may stand still before it is cut off: meanwhile it holds one of the box's few lanes."""


async def steady(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The same; TimeoutError where it stands still."""
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                chunk = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TimeoutError(f"nothing of the body came for {IDLE_S:g} s") from None
        yield chunk


async def after(first: bytes, data: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """`data` with its first piece, which was taken to see whether there is any."""
    async with aclosing(data):
        yield first
        async for piece in data:
            yield piece
