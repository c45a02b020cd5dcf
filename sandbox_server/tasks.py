"""Background work that nobody awaits: loops that survive a failed round, and sets of tasks that log failures."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Set
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError

log = telemetry.logger(__name__)

T = TypeVar("T")

FAILING_AFTER = 3
"""Consecutive failed rounds after which a loop counts as failing; fewer may be an outage that is over."""

_PAUSE_S = 1.0  # after a failed round of a loop without a period, so that it does not spin


class Loops:
    """The loops of one server. A round that raises is logged and counted, and the next round runs anyway."""

    def __init__(self) -> None:
        self._loops: dict[str, Loop] = {}

    @property
    def names(self) -> Set[str]:
        """Names of the running loops."""
        return self._loops.keys()

    def failing(self) -> Mapping[str, str]:
        """Loop -> last error, for loops whose last `FAILING_AFTER` or more rounds all failed."""
        return {
            name: f"failed {loop.failures} times in a row: {loop.error}"
            for name, loop in self._loops.items()
            if loop.failures >= FAILING_AFTER
        }

    def start(
        self, period_s: float, work: Callable[[], Awaitable[object]], *, name: str, at_once: bool = True
    ) -> "Loop":
        """Call `work` repeatedly until `Loop.stop`, `period_s` seconds after the end of each call.

        `at_once=False`: the first call comes after one period. With a period of 0, `work` must wait for an event of its
        own; a failed round is then followed by a pause of 1 s.
        """
        if name in self._loops:
            raise ValueError(f"there is a loop {name!r} already")
        loop = self._loops[name] = Loop(name, period_s, work, self._loops.pop)
        loop.begin(at_once=at_once)
        return loop

    @asynccontextmanager
    async def every(
        self,
        period_s: float,
        work: Callable[[], Awaitable[object]],
        *,
        name: str,
        at_once: bool = True,
        finish_s: float = 0.0,
    ) -> AsyncIterator[None]:
        """As `start`, for the duration of the context; on exit the current round has `finish_s` seconds to end."""
        loop = self.start(period_s, work, name=name, at_once=at_once)
        try:
            yield
        finally:
            await loop.stop(finish_s=finish_s)


class Loop:
    """One loop started by `Loops.start`."""

    def __init__(
        self, name: str, period_s: float, work: Callable[[], Awaitable[object]], ended: Callable[[str], object]
    ) -> None:
        self.failures = 0
        """Consecutive failed rounds."""
        self.error = ""
        """Error of the last failed round."""
        self._name = name
        self._period_s = period_s
        self._work = work
        self._ended = ended
        self._stopping = False
        self._pause: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, *, at_once: bool) -> None:
        """Called once, by `Loops.start`."""
        self._task = asyncio.create_task(self._run(at_once=at_once), name=f"loop-{self._name}")

    async def stop(self, *, finish_s: float = 0.0) -> None:
        """Start no further round; cancel the current one after `finish_s` seconds and wait for its end."""
        self._stopping = True
        if self._pause is not None:
            _end(self._pause)
        if self._task is not None:
            if finish_s:
                await asyncio.wait({self._task}, timeout=finish_s)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._ended(self._name)

    async def _run(self, *, at_once: bool) -> None:
        pause_s = 0.0 if at_once else self._period_s
        while not await self._stopped_within(pause_s):
            try:
                await self._work()
                self.failures = 0
                pause_s = self._period_s
            except ServiceError as error:
                telemetry.INFRA_ERRORS.labels(error.code).inc()
                log.warning("round of a loop failed", loop=self._name, code=error.code, error=error.detail)
                pause_s = self._failed(error.detail)
            except Exception as error:
                log.exception("round of a loop broke", loop=self._name)
                pause_s = self._failed(f"{type(error).__name__}: {error}")
            telemetry.LOOP_FAILING.labels(self._name).set(self.failures)

    async def _stopped_within(self, seconds: float) -> bool:
        if seconds <= 0:
            await asyncio.sleep(0)
        elif not self._stopping:
            # a bare future, because loops pause 15 times a second, and asyncio.timeout ends each wait by an exception
            loop = asyncio.get_running_loop()
            self._pause = loop.create_future()
            timer = loop.call_later(seconds, _end, self._pause)
            try:
                await self._pause
            finally:
                timer.cancel()
                self._pause = None
        return self._stopping

    def _failed(self, error: str) -> float:
        """Count the failure; returns the pause before the next round in seconds."""
        self.failures += 1
        self.error = error
        telemetry.LOOP_FAILURES.labels(self._name).inc()
        return self._period_s or _PAUSE_S


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


class TaskSet:
    """Tasks that nobody awaits. The set keeps them alive and logs a failed one under the set's name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(set(self._tasks))

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None, awaited: bool = False) -> asyncio.Task[T]:
        """Start `work`. `awaited`: the caller awaits the task and handles its failure."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if awaited else self._ended)
        return task

    async def settle(self, within_s: float) -> None:
        """Wait up to `within_s` seconds until all tasks have ended, including those they start meanwhile.

        Tasks that have not ended continue to run; `cancel` ends them.
        """
        deadline = time.monotonic() + within_s
        while self._tasks and (left_s := deadline - time.monotonic()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left_s)
        if self._tasks:
            log.warning("background tasks have not ended", tasks=self._name, count=len(self._tasks), after_s=within_s)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", tasks=self._name, task=task.get_name(), exc_info=error)
