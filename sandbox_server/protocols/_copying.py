"""Copies bytes between two connections. Not a plugin, hence the underscore."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine


async def copied(
    read: Callable[[], Awaitable[bytes]], write: Callable[[bytes], Awaitable[None]], moved: Callable[[], None]
) -> None:
    """Copy until `read` returns nothing; call `moved` after each read and write. Raises what `read` and `write` do."""
    while data := await read():
        moved()
        await write(data)
        moved()


async def first_of(*works: Coroutine[object, object, None]) -> None:
    """Run `works` concurrently until one ends; cancel the others. Raises what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
