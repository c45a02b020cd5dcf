"""Values that are made once for all who ask for them within a short time."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The last few values by their keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, asyncio.Task[T]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Coroutine[None, None, T]]) -> T:
        """The value of `key`, by `make` if it is not kept. Raises what that raises, to all who wait for it."""
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.create_task(make())
            if len(self._made) > self._most:
                self._made.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._made.get(key) is task:
                del self._made[key]
            raise

    def forget(self) -> None:
        """Drop all values; who waits for one gets it."""
        self._made.clear()
