"""Watches the size of the containers' writable layers, because overlay2 on ext4 has no quotas."""

from collections.abc import Awaitable, Callable

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sessions.kinds import Kinds
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

REASON = "disk_full"


class DiskWatch:
    """Ends sessions that exceed their disk limit; their patch is captured and graded like any other."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        kinds: Kinds,
        end: Callable[[str, str], Awaitable[SessionRecord | None]],
        *,
        node: str,
    ) -> None:
        """`end(sid, reason)` ends a session."""
        self._runtime = runtime
        self._store = store
        self._kinds = kinds
        self._node = node
        self._end = end

    async def look(self) -> None:
        """Check all live sessions once; a failure for one session does not stop the check of the others.

        Raises:
            StateUnavailable, EngineUnavailable: the sessions or their sizes are unknown.

        """
        sessions = await self._store.live(self._node)
        if not sessions:
            return
        used = await self._runtime.disk_usage()
        for session in sessions:
            try:
                await self._look_at(session, used.get(session.container_id, 0) >> 20)
            except ServiceError as e:
                log.warning("disk limit not enforced", sid=session.sid, code=e.code, error=e.detail)
            except Exception:
                log.exception("disk limit not enforced", sid=session.sid)

    async def _look_at(self, session: SessionRecord, size_mb: int) -> None:
        limit_mb = await self._kinds[session.kind].disk_mb(session)
        if size_mb > limit_mb:
            telemetry.REAPED.labels(REASON).inc()
            log.warning("session wrote too much", sid=session.sid, mb=size_mb, limit_mb=limit_mb)
            await self._end(session.sid, REASON)
