"""Copies of sessions for people to look around in: boxes with the files and the shell state of a session.

Such a copy is a box, so it does not count as a rollout: it has no run, no owner, no journal, no patch and no verdict.
Its lifetime is `LIFE_S` unless its client extends it, so it ends even if the client is killed.
"""

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from sandbox_server import clock, telemetry
from sandbox_server.boxes.view import BoxView
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import InfrastructureError
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import BoxKind, BoxRecord, SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Sandbox
from sandbox_server.sessions.checkpointing import Checkpointing, Origin
from sandbox_server.sessions.origins import Origins
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import Starts
from sandbox_server.state.boxes import BoxFacts
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

LIFE_S = 60.0
"""Seconds that a copy lives after its creation, and after each extension by its client."""
_DAMAGED = 3  # damaged checkpoints of one request
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class OpenedCopy:
    """A copy that has begun."""

    view: BoxView
    life_s: float
    """Seconds by which its client may extend it at a time."""
    notice: str
    """How the copy differs from the session; "" if it does not."""
    at: int
    """Number of the session's action after which it was taken."""


class Copies:
    """Makes copies of sessions as boxes, on this node."""

    def __init__(
        self,
        origins: Origins,
        checkpointing: Checkpointing,
        workspaces: Workspaces,
        starts: Starts,
        store: Store,
        facts: BoxFacts,
        log: SessionLog,
        *,
        start_timeout_s: float,
        max_s: float,
    ) -> None:
        """`max_s`: the longest life of a box (SANDBOX_BOX_MAX_S)."""
        self._origins = origins
        self._checkpointing = checkpointing
        self._workspaces = workspaces
        self._starts = starts
        self._store = store
        self._facts = facts
        self._log = log
        self._start_timeout_s = start_timeout_s
        self._max_s = max_s

    async def open(self, sid: str, at: int | None) -> OpenedCopy:
        """A copy of the session after its action `at` (None: its last one). Cancelling the call leaves nothing behind.

        Raises:
            As `Origins.of`, then as `Starts.begin`.
        """
        for _ in range(_DAMAGED):
            with suppress(CheckpointDamaged):
                return await self._open(sid, at)
        raise InfrastructureError(f"{_DAMAGED} checkpoints were damaged and are removed; send the request again")

    async def _open(self, sid: str, at: int | None) -> OpenedCopy:
        life_s = min(LIFE_S, self._max_s)
        async with self._origins.of(sid, at) as origin:
            plan = _Plan(origin, self._checkpointing, self._workspaces, self._store, self._facts, life_s, self._max_s)
            self._starts.groups.announce(plan.name, 1, time.monotonic())  # else the pool prepares for a whole group
            wait_s = self._start_timeout_s + sum(action.duration_s for action in origin.again)
            record = await self._starts.begin(plan, run="", wait_s=wait_s)
        self._log.add(record, plan.box)
        log.info("copy opened", sid=record.sid, parent=sid, at=origin.at)
        return OpenedCopy(BoxView(record, plan.box), life_s, record.notice, origin.at)


class _Plan:
    """A `starts.plan.Plan`."""

    instance_id = ""

    def __init__(
        self,
        origin: Origin,
        checkpointing: Checkpointing,
        workspaces: Workspaces,
        store: Store,
        facts: BoxFacts,
        lasts_s: float,
        max_s: float,
    ) -> None:
        self._origin = origin
        self._checkpointing = checkpointing
        self._workspaces = workspaces
        self._store = store
        self._facts = facts
        self._max_s = max_s
        self.name = f"copy of {origin.parent.sid}"
        self.cwd = origin.instance.workspace
        self.lasts_s = lasts_s
        self.box: BoxRecord
        """The complete result; set by `begin`."""

    async def spec(self) -> ContainerSpec:
        """See `Plan.spec`. The same as the session's, so that it can use containers parked for its image."""
        self._spec = await self._workspaces.spec(self._origin.instance)
        return self._spec

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `Plan.begin`; raises as `Checkpointing.restore`."""
        origin, limits = self._origin, self._spec.limits
        restored = await self._checkpointing.restore(
            replace(record, instance_id=origin.instance.instance_id), sandbox, origin
        )
        now = clock.now()  # its lifetime starts now: actions may have been run again for minutes
        copy = replace(
            record,
            deadline=now + self.lasts_s,
            touched_at=now,
            cwd=restored.cwd or record.cwd,
            notice=restored.notice("This sandbox is a copy"),
        )
        self.box = BoxRecord(
            sid=copy.sid,
            kind=BoxKind.NATIVE.value,
            image=self._spec.image,
            template="",
            metadata={"copy_of": origin.parent.sid, "at": str(origin.at)},
            env={},
            user="root",
            token=secrets.token_urlsafe(_TOKEN_BYTES),
            network=self._spec.network,
            cpus=limits.cpus,
            memory_mb=limits.memory_mb,
            disk_mb=limits.disk_mb,
            last_s=now + self._max_s,
            life_s=self.lasts_s,
        )
        await self._facts.put(self.box, copy.deadline)
        await self._store.put_session(copy)
        return copy
