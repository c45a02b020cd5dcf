"""Decides whether the patch is to blame when a grading fails after the patch is applied, by grading without it.

A patch can end its container, replace what the engine runs in it, or make one of our steps fail. If each of these gave
a mask, a policy could get a mask at will. So the unpatched tree goes through the same steps on the same node, and if
that gives no results, gold. If either gives some, the patch is to blame, once it has failed often enough that an
accident of the host is unlikely.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import EngineUnavailable, InfrastructureError, SandboxPaused, ServiceError
from sandbox_server.grading.base import TestRun, own_patches
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.verdicts import VerdictName

FAILURES_BEFORE_BLAME = 2
"""Failures that the patch is blamed for, if the control works."""
KILLS_BEFORE_BLAME = 3
"""The same for containers that were paused, or that ended as if killed from outside. Usually the engine restarted or an
operator did it; a patch can do it only by tracing the first process."""

_KILLED, _TERMINATED = 137, 143
_GRADED = {VerdictName.RESOLVED, VerdictName.UNRESOLVED}


class GradingInterrupted(InfrastructureError):
    """A step failed with the patch in the container, while the engine was available."""

    def __init__(self, error: Exception, *, image: str, outer: bool) -> None:
        """`image`: of the container; `outer`: the container ended as if killed from outside."""
        super().__init__(f"{error.code}: {error.detail}" if isinstance(error, ServiceError) else f"{error!r:.300}")
        self.error = error
        self.image = image
        self.outer = outer


@asynccontextmanager
async def attribute_failures(
    inspector: ContainerInspector, container_id: str, *, image: str, patch: bytes, limits: Limits
) -> AsyncIterator[None]:
    """Turn failures in the block into GradingInterrupted, unless there is no patch or the engine is unavailable.

    Raises:
        InfrastructureError: somebody on the host has lowered the container's limits below `limits`, which no patch can.
    """
    try:
        yield
    except Exception as error:
        if not patch:
            raise
        try:
            seen = await inspector.inspect(container_id)
        except EngineUnavailable:
            raise error from None
        except ServiceError:  # somebody removed it
            raise GradingInterrupted(error, image=image, outer=True) from error
        if lowered := seen.lowered_limits(limits):
            raise InfrastructureError(lowered) from error
        ended = not seen.running and not seen.oom_killed
        outer = isinstance(error, SandboxPaused) or (ended and seen.exit_code in (_KILLED, _TERMINATED))
        raise GradingInterrupted(error, image=image, outer=outer) from error


def is_suspect(interruptions: Sequence[GradingInterrupted], attempts: int) -> bool:
    """Whether to try again after `attempts` attempts because the blame is not decided yet.

    So it is if all of them broke off in a way that the patch can cause, but fewer than `FAILURES_BEFORE_BLAME` times.
    """
    return len(interruptions) == attempts < FAILURES_BEFORE_BLAME and not any(
        interruption.outer for interruption in interruptions
    )


class Control:
    """Runs the instance's own patches; a good run is trusted for a while, for the same image."""

    def __init__(self, run: Callable[[TaskInstance, bytes], Awaitable[TestRun]], *, kept_s: float) -> None:
        """`run` runs the tests over a patch once, in a fresh container."""
        self._run = run
        self._kept_s = kept_s
        self._good: dict[str, float] = {}  # key -> start of the last good run
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def blames(self, instance: TaskInstance, interruptions: Sequence[GradingInterrupted], *, began: float) -> str:
        """The cause for the verdict if the patch is to blame: it failed often enough and the control works. Else "".

        `began`: start of the first attempt. If the last interruption may come from the host (`outer`), only a
        control that began later counts.
        """
        last = interruptions[-1]
        own = sum(not interruption.outer for interruption in interruptions)
        if own < FAILURES_BEFORE_BLAME and len(interruptions) < KILLS_BEFORE_BLAME:
            return ""
        if not await self.works(instance, image=last.image, since=began if last.outer else 0.0):
            return ""
        return f"the patched tree ended its grading {len(interruptions)} times, the control does not: {last.detail}"

    async def works(self, instance: TaskInstance, *, image: str, since: float) -> bool:
        """Whether the control gives results, by a recent run that began after `since` (monotonic clock)."""
        key = f"{instance.instance_id}:{instance.row_sha256}:{image}"
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            began = time.monotonic()
            if self._good.get(key, -1.0) > max(since, began - self._kept_s):
                return True
            for patch in own_patches(instance):
                with suppress(ServiceError):
                    if (await self._run(instance, patch)).name in _GRADED:
                        self._good[key] = began
                        return True
            return False
