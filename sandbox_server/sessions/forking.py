"""Copies of sessions: n new sessions that start with the state of a session after its last action or an earlier one.

A copy is a session like any other. It starts in a container of the same image, parked or new. The state of a checkpoint
is restored in it, and later actions are run again. Its journal begins with the parent's actions, so that it can be
restored, scored and copied like its parent.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from sandbox_server import telemetry
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import SessionWithVerdict
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import InfrastructureError, ServiceError, UnknownSession
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Sandbox
from sandbox_server.sessions.checkpointing import Checkpointing, Origin
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.origins import Origins
from sandbox_server.starts.plan import TaskPlan
from sandbox_server.starts.start_all import Started, idempotent_start, start_all
from sandbox_server.starts.starts import Starts
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)

_DAMAGED = 3  # damaged checkpoints of one request that are replaced by older ones


class Forking:
    """Makes copies of sessions, on this node."""

    def __init__(
        self,
        data: SessionData,
        workspaces: Workspaces,
        starts: Starts,
        origins: Origins,
        checkpointing: Checkpointing,
        listing: Listing,
        run_state: RunState,
        close: Callable[[str], Awaitable[object]],
        *,
        start_timeout_s: float,
        session_max_s: float,
    ) -> None:
        """`close(sid)` ends a copy that is not needed. `session_max_s`: the longest life of a copy."""
        self._data = data
        self._workspaces = workspaces
        self._starts = starts
        self._origins = origins
        self._checkpointing = checkpointing
        self._listing = listing
        self._run_state = run_state
        self._close = close
        self._start_timeout_s = start_timeout_s
        self._session_max_s = session_max_s

    async def fork(self, sid: str, n: int, *, at: int | None = None, idempotency_key: str = "") -> Started:
        """Start `n` copies of this session after its action `at` (None: its last one, 0: before the first).

        They belong to the run and the API key of the parent. Returns the sids, and the errors of the copies that
        failed. A request with the same `idempotency_key` within some minutes returns the same sids.

        Raises:
            UnknownSession, IsBox, MalformedRequest (`at`), SessionBusy, SandboxLost: nothing was started. NotForkable:
            the contents of the sandbox prevent it. OwnedElsewhere. If no copy starts: as `Starts.begin`.
        """
        parent, instance = await self._origins.parent(sid)
        request = "\0".join(("fork", sid, str(n), str(at), idempotency_key)) if idempotency_key else ""
        return await idempotent_start(
            request, self._run_state, lambda: self._undamaged(parent, instance, n, at), self._close
        )

    async def tree(self, sid: str) -> list[SessionWithVerdict]:
        """The session, its ancestors, and all their copies, oldest first.

        Raises:
            UnknownSession, CatalogueUnavailable, StateUnavailable.
        """
        family = await self._listing.family(sid)
        if not family:
            raise UnknownSession.of(sid)
        present = [
            (await self._data.store.session(seen.record.sid)) if seen.record.ended_at == 0 else None for seen in family
        ]
        return [replace(seen, record=now or seen.record) for seen, now in zip(family, present, strict=True)]

    async def _undamaged(self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None) -> Started:
        for attempt in range(_DAMAGED + 1):
            with suppress(CheckpointDamaged):
                return await self._fork(parent, instance, n, at, anew=attempt == _DAMAGED)
        raise InfrastructureError(
            f"{_DAMAGED + 1} checkpoints were damaged; look at the disk of SANDBOX_DATA_DIR, and send the request again"
        )

    async def _fork(
        self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None, *, anew: bool
    ) -> Started:
        """`anew`: do not use stored checkpoints."""
        async with self._origins.found(parent, instance, n, at, anew=anew) as origin:
            self._starts.groups.announce(instance.instance_id, n, time.monotonic())
            if not origin.again:
                return await self._copies(origin, n)
            # the actions run again only once: the other copies start from a checkpoint of the first one
            sid = await self._copy(origin)
        if n == 1:
            return [sid], []
        try:
            async with self._origins.as_copy(origin, sid) as copied:
                sids, failed = await self._copies(copied, n - 1)
        except ServiceError as error:
            return [sid], [error] * (n - 1)
        except BaseException:
            await self._close(sid)
            raise
        return [sid, *sids], failed

    async def _copies(self, origin: Origin, n: int) -> Started:
        spec = None
        with suppress(ServiceError):  # each start then handles the error: it waits, or makes the image
            spec = await self._workspaces.spec(origin.instance)  # once for all copies: finding the name takes 0.4 ms
        return await start_all([self._copy(origin, spec=spec) for _ in range(n)], self._close)

    async def _copy(self, origin: Origin, *, spec: ContainerSpec | None = None) -> str:
        """Start a copy and return its sid."""
        parent = origin.parent
        plan = _Plan(self._checkpointing, origin, self._workspaces, self._data, self._session_max_s, spec)
        wait_s = self._start_timeout_s + sum(action.duration_s for action in origin.again)
        try:
            record = await self._starts.begin(plan, run=parent.run, owner=parent.owner, wait_s=wait_s)
        except ServiceError as error:
            telemetry.FORKS.labels(error.code).inc()
            log.warning("copy failed", parent=parent.sid, at=origin.at, code=error.code, error=error.detail)
            raise
        telemetry.FORKS.labels("ok").inc()
        log.info("copied", sid=record.sid, parent=parent.sid, at=origin.at)
        return record.sid


class _Plan(TaskPlan):
    """The plan of a copy."""

    def __init__(
        self,
        checkpointing: Checkpointing,
        origin: Origin,
        workspaces: Workspaces,
        data: SessionData,
        lasts_s: float,
        spec: ContainerSpec | None,
    ) -> None:
        """`spec`: what the method `spec` would return now, if the caller has it already."""
        super().__init__(origin.instance, workspaces, data.store, lasts_s)
        self._spec = spec
        self._rollouts = data.rollouts
        self._checkpointing = checkpointing
        self._origin = origin

    async def spec(self) -> ContainerSpec:
        """See `starts.plan.Plan.spec`."""
        known, self._spec = self._spec, None  # used once: a second call means that the image was removed meanwhile
        return known or await super().spec()

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `starts.plan.Plan.begin`; raises as `Checkpointing.restore`."""
        origin = self._origin
        restored = await self._checkpointing.restore(record, sandbox, origin)
        copy = replace(
            record,
            parent=origin.parent.sid,
            forked_at=origin.at,
            actions=origin.at,
            undone=origin.undone,
            talk_turns=restored.talk_turns,
            cwd=restored.cwd or record.cwd,
            notice=restored.notice("This sandbox is a copy"),
            differences=restored.untold,
        )
        if origin.instance.localizes:
            await self._rollouts.inherit(copy.sid, copy.parent)
        journal = [replace(action, sid=copy.sid, idempotency_key="") for action in origin.actions]
        await self._store.rebuild(copy, journal, to_sql=True)
        return copy
