"""How a session comes to be: a slot, a prepared image, a container from the pool, a record."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import CapacityError, ImageUnavailable, ServiceError
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.sessions.groups import Groups
from sandbox_server.sessions.lifecycle import SessionState
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.pool import Pool, PoolConfig
from sandbox_server.sessions.workspace import Workspaces
from sandbox_server.state.store import Store

# Past a session's own end its patch is captured and its container removed; only then may the label's deadline pass.
_GRACE_S = 1800.0
_RETRY_AFTER_S = 10.0


@dataclass(slots=True)
class _Start:
    """One start on its way; it holds a slot until its session does."""

    instance: TaskInstance
    stage: str = "slots"
    sid: str = ""
    timings_s: dict[str, float] = field(default_factory=dict)


class Starts:
    """Starts sessions on this node, at most `max_sessions` live at a time."""

    def __init__(
        self, runtime: Runtime, workspaces: Workspaces, store: Store, log: SessionLog, config: SessionConfig
    ) -> None:
        self._runtime = runtime
        self._workspaces = workspaces
        self._store = store
        self._log = log
        self._config = config
        self._sids: set[str] = set()
        self._starting = 0
        self._freed = asyncio.Condition()
        self.groups = Groups(first_guess=config.pool_group, window_s=config.pool_group_window_s)
        """What is known of how many starts follow each other."""
        self.pool = Pool(
            runtime,
            PoolConfig(
                size=config.pool_size,
                idle_s=config.pool_idle_s,
                min_free_mb=config.pool_min_free_mb,
                # one for every two CPUs: with two at a time on two CPUs, live sessions waited 0.3 s for theirs
                together=max(1, config.boot_concurrency // 4),
                lasts_s=config.session_max_s + _GRACE_S,
            ),
            room=lambda: config.max_sessions - self.used,
        )
        """Where the containers come from."""

    @property
    def used(self) -> int:
        """Slots in use: live sessions and starts under way."""
        return len(self._sids) + self._starting

    @property
    def sids(self) -> frozenset[str]:
        """Sessions that have a slot here."""
        return frozenset(self._sids)

    async def adopt(self, sids: Iterable[str]) -> None:
        """Sessions of a former server take their slots again."""
        async with self._freed:
            self._sids.update(sids)
            self._show()

    async def release(self, sid: str) -> None:
        """The session is over, its slot is free; any number of times, also for one that never had any."""
        async with self._freed:
            self._sids.discard(sid)
            self._show()
            self._freed.notify_all()

    async def start(self, instance: TaskInstance) -> SessionRecord:
        """A new session of `instance`.

        Raises:
            CapacityError: no slot, or no container within SANDBOX_START_TIMEOUT_S.
            ImageUnavailable, EngineUnavailable, StateUnavailable, CatalogueUnavailable.
        """
        self.groups.arrived(instance.instance_id, time.monotonic())
        start = _Start(instance)
        try:
            async with asyncio.timeout(self._config.start_timeout_s), self._slot(start):
                try:
                    return await self._begin(start)
                except ImageUnavailable:  # somebody removed it since it was last used
                    return await self._begin(start)
        except TimeoutError:
            raise CapacityError(
                f"no sandbox within {self._config.start_timeout_s:g} s (waiting for: {start.stage});"
                f" {self.used} of {self._config.max_sessions} slots are in use on {self._config.node}",
                reason=start.stage,
                retry_after_s=_RETRY_AFTER_S,
            ) from None

    @asynccontextmanager
    async def place(self, sid: str, instance: TaskInstance) -> AsyncIterator[None]:
        """A slot for a session that is made anew here; the session's own after the body, free again if that raises."""
        start = _Start(instance)
        async with self._slot(start):
            start.sid = sid
            self._sids.add(sid)
            self._starting -= 1
            yield

    @asynccontextmanager
    async def _slot(self, start: _Start) -> AsyncIterator[None]:
        """A slot, for good unless the body raises."""
        with _timed(start, "queue"):
            async with self._freed:
                await self._freed.wait_for(lambda: self.used < self._config.max_sessions)
                self._starting += 1
                self._show()
        try:
            yield
        except BaseException:
            self._starting -= not start.sid
            await asyncio.shield(self.release(start.sid))
            raise

    def _show(self) -> None:
        telemetry.SESSIONS_LIVE.set(self.used)

    async def _begin(self, start: _Start) -> SessionRecord:
        instance = start.instance
        start.stage = "image"
        with _timed(start, "prepare"):
            spec = await self._workspaces.spec(instance)
        start.stage = "daemon"
        siblings = self.groups.remaining(instance.instance_id)
        self.pool.want(instance.instance_id, spec, siblings, for_s=self._config.pool_group_window_s, now=True)
        with _timed(start, "container"):
            taken = await self.pool.take(spec)
        start.sid = taken.sid
        self._sids.add(taken.sid)
        self._starting -= 1
        try:
            return await self._record(start, taken.sandbox)
        except BaseException:
            with suppress(ServiceError):
                await asyncio.shield(self._runtime.remove(taken.sandbox.container_id))
            raise

    async def _record(self, start: _Start, sandbox: Sandbox) -> SessionRecord:
        now = clock.now()
        record = SessionRecord(
            sid=start.sid,
            state=SessionState.LIVE,
            instance_id=start.instance.instance_id,
            node=self._config.node,
            container_id=sandbox.container_id,
            created_at=now,
            touched_at=now,
            deadline=now + self._config.session_max_s,
            cwd=start.instance.workspace,
            timings_s={**start.timings_s, **{f"start_{stage}": seconds for stage, seconds in sandbox.boot_s.items()}},
        )
        with _timed(start, "record"):
            await self._store.put_session(record)
        self._log.add(record)
        return record


@contextmanager
def _timed(start: _Start, stage: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - began
        telemetry.START_SECONDS.labels(stage).observe(seconds)
        name = f"start_{stage}"
        start.timings_s[name] = start.timings_s.get(name, 0.0) + seconds
