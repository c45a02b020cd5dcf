"""Long work on the event loop in slices: an action beside it waits for one slice, not for all of the work.

A thread is no help: it holds the GIL for 5 ms whenever the loop wants it back.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

_SLICE_S = 0.00025  # an action takes some eight rounds of the event loop, each of which may wait this long


async def sliced(items: Iterable[T]) -> list[T]:
    """The items of a lazy iterable; after 0.25 ms of work, or an item that takes longer, others have a turn."""
    made: list[T] = []
    began = time.perf_counter()
    for item in items:
        made.append(item)
        if time.perf_counter() - began > _SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return made
