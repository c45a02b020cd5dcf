"""Rounds that put idle sessions, or idle boxes, to sleep: a few at a time, each at most once within the idle time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from sandbox_server import clock, telemetry
from sandbox_server.errors import NotForkable, ServiceError, SessionBusy

log = telemetry.logger(__name__)

_AT_ONCE = 4  # checkpoints taken at the same time


class SleepRounds:
    """Puts sessions of one kind to sleep, and remembers which could not sleep."""

    def __init__(self, what: str, sleep: Callable[[str], Awaitable[bool]], *, idle_s: float) -> None:
        """`what`: `session` or `box`, for the log. `idle_s`: seconds between two attempts with the same session.

        `sleep(sid)` returns whether the session sleeps now. It must check again that the session is idle, because the
        attempts before it may have taken minutes. It raises SessionBusy: in use; NotForkable: cannot be stored.
        """
        self._what = what
        self._sleep = sleep
        self._idle_s = idle_s
        self._tried: dict[str, float] = {}
        """sid -> Unix seconds of the last attempt."""

    async def round(self, live: Iterable[str], idle: Iterable[str]) -> None:
        """Try the sessions `idle`. `live`: the sids of all live sessions; attempts with others are forgotten."""
        self._tried = {sid: self._tried[sid] for sid in live if sid in self._tried}
        turns, before = asyncio.Semaphore(_AT_ONCE), clock.now() - self._idle_s
        await asyncio.gather(*(self._try(sid, turns) for sid in idle if self._tried.get(sid, 0.0) < before))

    async def _try(self, sid: str, turns: asyncio.Semaphore) -> None:
        self._tried[sid] = clock.now()
        result = "awake"
        try:
            async with turns:
                asleep = await self._sleep(sid)
            if asleep:
                del self._tried[sid]
                result = "asleep"
        except SessionBusy:
            return
        except NotForkable as error:
            log.info(f"{self._what} does not sleep", sid=sid, why=error.detail)
        except ServiceError as error:
            result = error.code
            log.warning(f"{self._what} does not sleep", sid=sid, code=error.code, error=error.detail)
        telemetry.SLEEPS.labels(result).inc()
