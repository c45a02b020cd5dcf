"""Caches values for a few seconds, so that many viewers cost no more reads than one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ShortCache(Generic[K, T]):
    """Reads a value by its key when it is asked for; each key at most once per `for_s` seconds."""

    def __init__(self, read: Callable[[K], Awaitable[T]], *, for_s: float, most: int = 1) -> None:
        """`for_s`: age in seconds from which a value is read again. `most`: keys that are cached at a time."""
        self._read = read
        self._for_s = for_s
        self._most = most
        self._kept: dict[K, tuple[float, asyncio.Future[T]]] = {}

    async def of(self, key: K) -> T:
        """The value of `key`, at most `for_s` seconds old. Raises as `read`."""
        if not self.begin(key):
            return await self._read(key)
        # a caller that is cancelled must not cancel the read of the others
        return await asyncio.shield(self._kept[key][1])

    def begin(self, key: K) -> bool:
        """Start reading `key` unless a fresh value is cached; False if `most` other keys are cached already."""
        now = time.monotonic()
        self._kept = {k: kept for k, kept in self._kept.items() if now - kept[0] < self._for_s or not kept[1].done()}
        if key not in self._kept:
            if len(self._kept) >= self._most:
                return False
            reading = asyncio.ensure_future(self._read(key))
            reading.add_done_callback(_retrieve_error)
            self._kept[key] = (now, reading)
        return True

    def forget(self) -> None:
        """Drop all cached values."""
        self._kept.clear()


def _retrieve_error(done: "asyncio.Future[Any]") -> None:
    """Keep asyncio from reporting an error that no caller waits for any more."""
    if not done.cancelled():
        done.exception()
