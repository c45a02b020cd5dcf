"""Return type of the drop-in's functions; works for callers that await it and for callers that forgot to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any

_SLACK_S = 30.0


class Reply(Coroutine[Any, Any, Any]):
    """The answer of a request that has already been sent, whether or not anybody waits for it.

    - Awaiting it (also by gather, create_task, wait_for, asyncio.run) gives the plain value. Cancelling the waiter does
      not cancel the request.
    - Subscripting, `.get`, `in`, `bool`, `len` and iteration block until the answer is there, then act on the value;
      so a failed request (None) raises TypeError when subscripted.
    - If the value is a pair `(index, dict)`, it unpacks as the pair, and string keys are looked up in the dict.

    `is None` is never true of it, and it equals only itself.
    """

    def __init__(self, future: Future[Any], *, timeout_s: float) -> None:
        """`future` must not raise, and is done within `timeout_s` unless its thread has ended."""
        self._future = future
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._steps: Generator[Any, Any, Any] | None = None

    @property
    def value(self) -> Any:
        """The plain dict, pair or None; blocks. None if the answer cannot arrive: in a forked child, or at exit."""
        if not self._future.done() and os.getpid() != self._pid:
            print("Sandbox - a reply was taken into a forked process and cannot arrive there")  # noqa: T201  # as upstream
            return None
        try:
            return self._future.result(self._timeout_s + _SLACK_S)
        except Exception as error:  # noqa: BLE001  # as upstream: print, give None
            print(f"Sandbox - no answer: {type(error).__name__}: {error}")  # noqa: T201  # as upstream
            return None

    def block_if_nobody_can_await(self) -> Reply:
        """Wait for the answer in a worker thread without a loop (executor, to_thread), where returning means done.

        Do not wait on a running loop, which must not block, nor in the main thread without a loop, where callers
        collect replies for a later gather.
        """
        if threading.current_thread() is not threading.main_thread() and not _loop_is_running():
            _ = self.value
        return self

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from asyncio.shield(asyncio.wrap_future(self._future)).__await__())

    def send(self, value: Any, /) -> Any:
        """One step of the await, for create_task."""
        return self._started().send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """Raise into the await, as a task does to cancel it."""
        error = kind if isinstance(kind, BaseException) else value if isinstance(value, BaseException) else kind()
        return self._started().throw(error)

    def close(self) -> None:
        """End the await; the request continues."""
        if self._steps is not None:
            self._steps.close()

    def __getitem__(self, key: Any) -> Any:
        return (self._mapping() if isinstance(key, str) else self.value)[key]

    def get(self, key: str, default: Any = None) -> Any:
        """As dict.get."""
        return self._mapping().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._mapping()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __repr__(self) -> str:
        return f"<Reply {self.value!r}>" if self._future.done() else "<Reply under way>"

    def _started(self) -> Generator[Any, Any, Any]:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps

    def _mapping(self) -> Any:
        value = self.value
        return value[1] if isinstance(value, tuple) else value


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
