"""Streamed bodies with an idle timeout. Not a plugin, hence the underscore."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

IDLE_S = 120.0
"""Seconds without data after which a body is cut off; meanwhile it holds one of the box's few file channels."""


async def with_idle_timeout(body: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield from `body`; TimeoutError after IDLE_S seconds without data."""
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                chunk = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TimeoutError(f"no data of the body arrived for {IDLE_S:g} s") from None
        yield chunk


async def prepend(first: bytes, data: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield `first`, which was taken from `data` to check that there is any, then the rest of `data`."""
    async with aclosing(data):
        yield first
        async for piece in data:
            yield piece
