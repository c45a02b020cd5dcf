"""How a session comes to be: a slot, a prepared image, a container, a record."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from sandbox_server import telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import CapacityError, ImageUnavailable, ServiceError
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Role, Runtime
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.sessions.lifecycle import SessionState
from sandbox_server.sessions.workspace import Prepared, Workspaces
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

# Past a session's own end its patch is captured and its container removed; only then may the label's deadline pass.
_GRACE_S = 1800.0
_RETRY_AFTER_S = 10.0


class Starts:
    """Starts sessions on this node, at most `max_sessions` live at a time."""

    def __init__(
        self, runtime: Runtime, workspaces: Workspaces, store: Store, history: History, config: SessionConfig
    ) -> None:
        self._runtime = runtime
        self._workspaces = workspaces
        self._store = store
        self._history = history
        self._config = config
        self._sids: set[str] = set()
        self._freed = asyncio.Condition()
        self._random = random.SystemRandom()

    @property
    def used(self) -> int:
        """Slots in use: live sessions and starts under way."""
        return len(self._sids)

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
        stage = "slots"
        try:
            async with asyncio.timeout(self._config.start_timeout_s), self._slot() as sid:
                stage = "image"
                prepared = await self._prepared(instance)
                stage = "daemon"
                try:
                    return await self._create(sid, instance, prepared.image)
                except ImageUnavailable:  # somebody removed it since it was last used
                    self._workspaces.forget(instance)
                    stage = "image"
                    prepared = await self._prepared(instance)
                    stage = "daemon"
                    return await self._create(sid, instance, prepared.image)
        except TimeoutError:
            raise CapacityError(
                f"no sandbox within {self._config.start_timeout_s:g} s (waiting for: {stage});"
                f" {self.used} of {self._config.max_sessions} slots are in use on {self._config.node}",
                reason=stage,
                retry_after_s=_RETRY_AFTER_S,
            ) from None

    async def _prepared(self, instance: TaskInstance) -> Prepared:
        with telemetry.START_SECONDS.labels("prepare").time():
            return await self._workspaces.prepared(instance)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[str]:
        """A slot for the sid that it gives, for good unless the body raises."""
        with telemetry.START_SECONDS.labels("queue").time():
            async with self._freed:
                await self._freed.wait_for(lambda: self.used < self._config.max_sessions)
                sid = str(self._random.randrange(1, 2**53))
                self._sids.add(sid)
                self._show()
        try:
            yield sid
        except BaseException:
            await asyncio.shield(self.release(sid))
            raise

    def _show(self) -> None:
        telemetry.SESSIONS_LIVE.set(self.used)

    async def _create(self, sid: str, instance: TaskInstance, image: str) -> SessionRecord:
        now = time.time()
        own = instance.sandbox
        spec = ContainerSpec(
            image=image,
            role=Role.SESSION,
            sid=sid,
            deadline=datetime.fromtimestamp(now + self._config.session_max_s + _GRACE_S, UTC),
            workdir=instance.workspace,
            env=own.env,
            activate=own.activate,
            network=own.network,
            limits=self._config.limits_of(own.memory_mb, own.cpus, own.pids, own.disk_mb),
        )
        with telemetry.START_SECONDS.labels("create").time():
            sandbox = await self._runtime.create(spec)
        record = SessionRecord(
            sid=sid,
            state=SessionState.LIVE,
            instance_id=instance.instance_id,
            node=self._config.node,
            container_id=sandbox.container_id,
            created_at=now,
            touched_at=time.time(),
            deadline=now + self._config.session_max_s,
            cwd=instance.workspace,
        )
        try:
            with telemetry.START_SECONDS.labels("record").time():
                await asyncio.gather(self._store.put_session(record), self._history.save_session(record))
        except BaseException:
            with suppress(ServiceError):
                await asyncio.shield(self._runtime.remove(sandbox.container_id))
            raise
        return record
