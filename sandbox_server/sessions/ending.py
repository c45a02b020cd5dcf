"""The end of a session: patch, container, record; in that order, and from any point again after a crash."""

import time
from contextlib import suppress
from dataclasses import replace

from sandbox_server import telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import InfrastructureError, SandboxLost, ServiceError, StateUnavailable, UnknownInstance
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sessions import patches
from sandbox_server.sessions.config import SessionConfig
from sandbox_server.sessions.lifecycle import SessionState, sources_of
from sandbox_server.sessions.starts import Starts
from sandbox_server.sessions.workspace import Workspaces
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

_ENDED = (SessionState.ENDED, SessionState.LOST)


class Ending:
    """Ends sessions of this node; the same session any number of times."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        store: Store,
        history: History,
        instances: Instances,
        starts: Starts,
        config: SessionConfig,
    ) -> None:
        self._runtime = runtime
        self._workspaces = workspaces
        self._store = store
        self._history = history
        self._instances = instances
        self._starts = starts
        self._config = config

    async def end(self, sid: str, reason: str) -> SessionRecord | None:
        """End the session and return its record; None for an unknown sid.

        Waits for an action or another end of the same session that is under way.

        Raises:
            SessionBusy: that did not end in time. InfrastructureError: the session is still there, ask again.
        """
        record = await self._store.session(sid)
        if record is None:
            record = await self._history.session(sid)
            if record is not None and record.state not in _ENDED:
                raise StateUnavailable(f"Redis has lost session {sid}; the reaper puts it back, ask again")
            return record
        if record.state in _ENDED:
            return record
        config = self._config
        wait_s = config.command_timeout_s + config.action_wait_s + config.postprocess_timeout_s
        async with self._store.lock(sid, wait_s):
            record = await self._store.session(sid)
            if record is None or record.state in _ENDED:
                return record
            await self._store.move(
                sid,
                SessionState.ENDING,
                frozenset(sources_of(SessionState.ENDING)),
                end_reason=record.end_reason or reason,
            )
            try:
                patch = await self._capture(record)
            except SandboxLost as e:
                return await self._lose(record, e.detail)
            await self._history.save_patch(patch)
            return await self._finish(record, SessionState.ENDED, record.end_reason or reason, patch.cause)

    async def lose(self, sid: str, cause: str) -> SessionRecord | None:
        """The container is gone before a patch could be taken; verdict `infra` follows."""
        async with self._store.lock(sid, self._config.command_timeout_s):
            record = await self._store.session(sid)
            if record is None or record.state in _ENDED:
                return record
            return await self._lose(record, cause)

    async def _capture(self, record: SessionRecord) -> PatchRecord:
        if stored := await self._history.patch(record.sid):
            return stored  # a server died after this and before the container was gone
        try:
            instance = await self._instances.by_id(record.instance_id)
        except UnknownInstance as e:
            raise SandboxLost(f"its instance was removed from the catalogue: {e.detail}") from e
        sandbox = await self._runtime.attach(record.container_id)
        base = ""
        # only a note in the receipt: a patch is worth more than it
        with suppress(ServiceError):
            base = (await self._workspaces.prepared(instance)).base_commit
        with telemetry.ACTION_SECONDS.labels("patch").time():
            return await patches.capture(
                sandbox,
                record,
                instance,
                base_commit=base or instance.base_commit,
                timeout_s=self._config.postprocess_timeout_s,
                max_bytes=self._config.max_patch_bytes,
            )

    async def _lose(self, record: SessionRecord, cause: str) -> SessionRecord:
        log.error("sandbox lost", sid=record.sid, instance_id=record.instance_id, cause=cause)
        telemetry.INFRA_ERRORS.labels(SandboxLost.code).inc()
        return await self._finish(record, SessionState.LOST, "lost", cause)

    async def _finish(self, record: SessionRecord, state: SessionState, reason: str, cause: str) -> SessionRecord:
        ended = replace(record, state=state, end_reason=reason, cause=cause, ended_at=time.time())
        # SQL first: what Redis calls ended, nobody looks at again
        await self._history.save_session(ended)
        await self._store.move(
            record.sid, state, frozenset(sources_of(state)), end_reason=reason, cause=cause, ended_at=ended.ended_at
        )
        try:
            await self._runtime.remove(record.container_id)
        except InfrastructureError as e:
            log.warning("container left to the reaper", sid=record.sid, code=e.code, error=e.detail)
        await self._starts.release(record.sid)
        return ended
