"""Who is to blame when a grading breaks off after the patch is in: is it the same without the patch?

A patch can end its container, replace what the engine runs in it, or make a step of ours fail. Each would be a mask at
will. So the unpatched tree goes through the same steps on the same node; where that gives results, the patch is to
blame, once it has broken off often enough that an accident of the host is unlikely.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import EngineUnavailable, InfrastructureError, ServiceError
from sandbox_server.grading.base import TestRun
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.outside import Outside

OWN_BREAKS = 2
"""Break-offs of a patch beside a working control."""
OUTER_BREAKS = 3
"""Where its container ended as by a kill from outside: the engine restarted, or an operator ended it. From inside that
takes a trace of the first process."""

_KILLED, _TERMINATED = 137, 143
_GRADED = {VerdictName.RESOLVED, VerdictName.UNRESOLVED}


class BrokeOff(InfrastructureError):
    """A step failed with the patch in the container, while the engine was well."""

    def __init__(self, error: Exception, *, image: str, outer: bool) -> None:
        """`image` is its container's; `outer`: that ended as by a kill from outside."""
        super().__init__(f"{error.code}: {error.detail}" if isinstance(error, ServiceError) else f"{error!r:.300}")
        self.error = error
        self.image = image
        self.outer = outer


@asynccontextmanager
async def blaming(outside: Outside, container_id: str, *, image: str, patch: bytes) -> AsyncIterator[None]:
    """What fails in here fails with `patch` in the container, as a BrokeOff; without one, or an engine, as it is."""
    try:
        yield
    except Exception as error:
        if not patch:
            raise
        try:
            seen = await outside.see(container_id)
        except EngineUnavailable:
            raise error from None
        except ServiceError:  # somebody removed it
            raise BrokeOff(error, image=image, outer=True) from error
        ended = not seen.running and not seen.oom_killed
        outer = ended and seen.exit_code in (_KILLED, _TERMINATED)
        raise BrokeOff(error, image=image, outer=outer) from error


def is_suspect(breaks: Sequence[BrokeOff], attempts: int) -> bool:
    """Whether one more try would show whose these are, where only so many `attempts` are meant to be made."""
    return len(breaks) == attempts < OWN_BREAKS and not any(broken.outer for broken in breaks)


class Control:
    """Runs the unpatched tree; a good run counts for a while, for the same image."""

    def __init__(self, run: Callable[[TaskInstance], Awaitable[TestRun]], *, kept_s: float) -> None:
        """`run` grades the unpatched tree once, on a fresh container."""
        self._run = run
        self._kept_s = kept_s
        self._good: dict[str, float] = {}  # when the last good one began
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def blames(self, instance: TaskInstance, breaks: Sequence[BrokeOff], *, began: float) -> str:
        """The cause of the patch's verdict, once it broke off often enough beside a control that works; "" before that.

        `began` is its first attempt's beginning: where the host is a suspect, only a later control can clear it.
        """
        last = breaks[-1]
        own = sum(not broken.outer for broken in breaks)
        if own < OWN_BREAKS and len(breaks) < OUTER_BREAKS:
            return ""
        if not await self.works(instance, image=last.image, since=began if last.outer else 0.0):
            return ""
        return f"the patched tree ended its grading {len(breaks)} times, the unpatched tree does not: {last.detail}"

    async def works(self, instance: TaskInstance, *, image: str, since: float) -> bool:
        """Whether it gives results; by a run that began after `since` (of the monotonic clock) or is young enough."""
        key = f"{instance.instance_id}:{instance.row_sha256}:{image}"
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            began = time.monotonic()
            if self._good.get(key, -1.0) > max(since, began - self._kept_s):
                return True
            try:
                good = (await self._run(instance)).name in _GRADED
            except ServiceError:
                good = False
            if good:
                self._good[key] = began
            return good
