"""Does long work on the event loop in slices, so that an action meanwhile waits for one slice, not for all of the work.

A thread would not help: it keeps the GIL for 5 ms each time the event loop needs it.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_SLICE_S = 0.0001  # an action takes some eight rounds of the event loop, each of which may wait this long
_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()
"""Event loop -> lock, because four pages at once must not put four slices into each round of the loop."""


async def sliced(items: Iterable[T]) -> list[T]:
    """The items of a lazy iterable; after 0.1 ms of work, or an item that takes longer, others have a turn."""
    turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    rest, made = iter(items), list[T]()
    while True:
        async with turn:
            if _ended(rest, made):
                return made
            await asyncio.sleep(0)  # keeps the lock, so that slices of other callers come in later rounds


def _ended(rest: Iterator[T], made: list[T]) -> bool:
    """Take items for one slice; True: there is none left."""
    began = time.perf_counter()
    for item in rest:
        made.append(item)
        if time.perf_counter() - began > _SLICE_S:
            return False
    return True
