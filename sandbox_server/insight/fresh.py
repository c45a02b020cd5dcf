"""What was read a moment ago is good enough for the next who ask: many who look cost as much as one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Fresh(Generic[K, T]):
    """Reads by key, once at a time and at most once in some seconds. With nobody asking it does nothing."""

    def __init__(self, read: Callable[[K], Awaitable[T]], *, for_s: float, most: int = 1) -> None:
        """`for_s`: age in seconds from which a key is read again. Beyond `most` keys, nothing is kept."""
        self._read = read
        self._for_s = for_s
        self._most = most
        self._kept: dict[K, tuple[float, asyncio.Future[T]]] = {}

    async def of(self, key: K) -> T:
        """As of now, or of up to `for_s` ago. Raises what reading raises."""
        if not self.begin(key):
            return await self._read(key)
        # a viewer that goes takes nothing from the others who wait
        return await asyncio.shield(self._kept[key][1])

    def begin(self, key: K) -> bool:
        """Begin to read what `of` will want; False: too many keys are kept."""
        now = time.monotonic()
        self._kept = {k: kept for k, kept in self._kept.items() if now - kept[0] < self._for_s or not kept[1].done()}
        if key not in self._kept:
            if len(self._kept) >= self._most:
                return False
            reading = asyncio.ensure_future(self._read(key))
            reading.add_done_callback(_heard)  # who asked may have gone
            self._kept[key] = (now, reading)
        return True

    def forget(self) -> None:
        """Read anew at the next question."""
        self._kept.clear()


def _heard(done: "asyncio.Future[Any]") -> None:
    """Its failure needs nobody who waits for it."""
    if not done.cancelled():
        done.exception()
