"""A small cache of awaited values, shared by concurrent callers."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class AsyncCache(Generic[T]):
    """Keeps the values of the last `most` keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, asyncio.Task[T]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Coroutine[None, None, T]]) -> T:
        """The value of `key`; `make` computes it if it is not cached. All waiting callers get the error of `make`."""
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
        """Drop all values. Callers that already wait still get theirs."""
        self._made.clear()
