"""How a session comes to be: a slot, a prepared image, a container, a record."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
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
from sandbox_server.sessions.workspace import Workspaces
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
        self._live = 0
        self._freed = asyncio.Condition()
        self._random = random.SystemRandom()

    @property
    def starting(self) -> int:
        """Slots in use: live sessions and starts under way."""
        return self._live

    async def count(self, live: int) -> None:
        """Set the number of slots in use, from what the reaper found."""
        async with self._freed:
            self._live = live
            telemetry.SESSIONS_LIVE.set(live)
            self._freed.notify_all()

    async def start(self, instance: TaskInstance) -> SessionRecord:
        """A new session of `instance`.

        Raises:
            CapacityError: no slot, or no container within SANDBOX_START_TIMEOUT_S.
            ImageUnavailable, EngineUnavailable, StateUnavailable, CatalogueUnavailable.
        """
        stage = "slots"
        try:
            async with asyncio.timeout(self._config.start_timeout_s), self._slot():
                stage = "image"
                with telemetry.START_SECONDS.labels("prepare").time():
                    prepared = await self._workspaces.prepared(instance)
                stage = "daemon"
                return await self._create(instance, prepared.image)
        except TimeoutError:
            raise CapacityError(
                f"no sandbox within {self._config.start_timeout_s:g} s (waiting for: {stage});"
                f" {self._live} of {self._config.max_sessions} sessions are live on {self._config.node}",
                reason=stage,
                retry_after_s=_RETRY_AFTER_S,
            ) from None
        except ImageUnavailable:
            self._workspaces.forget(instance)
            raise

    async def release(self) -> None:
        """One slot is free again."""
        await self.count(max(0, self._live - 1))

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        with telemetry.START_SECONDS.labels("queue").time():
            async with self._freed:
                await self._freed.wait_for(lambda: self._live < self._config.max_sessions)
                self._live += 1
                telemetry.SESSIONS_LIVE.set(self._live)
        try:
            yield
        except BaseException:
            await asyncio.shield(self.release())
            raise

    async def _create(self, instance: TaskInstance, image: str) -> SessionRecord:
        now = time.time()
        sid = str(self._random.randrange(1, 2**53))
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
