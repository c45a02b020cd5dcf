"""How a session comes to be: a slot, a prepared image, a container from the pool, a record."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import (
    CapacityError,
    EngineUnavailable,
    ImageUnavailable,
    RepositoryUnavailable,
    ServiceError,
)
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import SessionState
from sandbox_server.pool.bucket import Taken
from sandbox_server.pool.fair import FairQueue, QueueFull, Ticket
from sandbox_server.pool.groups import Groups
from sandbox_server.pool.pool import Pool
from sandbox_server.pool.quotas import Quotas
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sessions.config import StartConfig
from sandbox_server.sessions.log import SessionLog
from sandbox_server.sessions.plan import Plan, TaskPlan
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

GRACE_S = 1800.0
"""Past a session's own end its patch is captured and its container removed; only then may the label's deadline pass."""


@dataclass(slots=True)
class _Start:
    """One start on its way; it holds a slot until its session does."""

    name: str
    """Of its plan."""
    run: str
    owner: str
    ticket: Ticket
    """In the queue where it waits, or waited last."""
    stage: str = "slots"
    """What it waits for: slots, image, daemon, disk."""
    sid: str = ""
    timings_s: dict[str, float] = field(default_factory=dict)


class Starts:
    """Starts sessions on this node, at most `max_sessions` live at a time."""

    def __init__(
        self,
        runtime: Runtime,
        workspaces: Workspaces,
        store: Store,
        log: SessionLog,
        config: StartConfig,
        faults: Faults | None = None,
    ) -> None:
        """`faults`: while there are any, nothing new is begun."""
        self._runtime = runtime
        self._workspaces = workspaces
        self._store = store
        self._log = log
        self._config = config
        self._faults = faults or Faults()
        self._slots = FairQueue(config.max_sessions, most_waiting=config.start_queue)
        self._quotas = Quotas(sessions=config.run_sessions, starts_per_min=config.run_starts_per_min)
        self._holders: dict[str, tuple[str, str]] = {}
        """Run and owner of the sessions that hold a slot, by sid."""
        self.groups = Groups(first_guess=config.pool_group, window_s=config.pool_group_window_s)
        """What is known of how many starts follow each other."""
        self.pool = Pool(
            runtime,
            config.pool,
            # what is parked goes before a disk is full, and nothing is parked there
            room=lambda: 0 if "disk" in self.faults else config.max_sessions - self.used,
        )
        """Where the containers come from."""

    @property
    def used(self) -> int:
        """Slots in use: live sessions and starts under way."""
        return self._slots.used

    @property
    def sids(self) -> frozenset[str]:
        """Sessions that have a slot here."""
        return frozenset(self._holders)

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot; whose container is being made, or is to be, have theirs."""
        return self._slots.waiting

    def parked(self) -> dict[str, int]:
        """Containers ready for a start, by instance id; instances without one are left out."""
        parked: Counter[str] = Counter()
        for bucket in self.pool.view():
            parked.update(dict.fromkeys(bucket.instances, bucket.parked))
        return {instance_id: count for instance_id, count in parked.items() if count}

    @property
    def faults(self) -> Mapping[str, str]:
        """Reason (daemon, disk) -> why nothing new starts here now; empty when all is well."""
        return self._faults.present

    async def adopt(self, sessions: Iterable[SessionRecord]) -> None:
        """Sessions of a former server take their slots again."""
        for session in sessions:
            if session.sid not in self._holders:
                self._holders[session.sid] = session.run, session.owner
                self._slots.hold(session.run)
                self._quotas.hold(session.owner or session.run)
        self._show()

    async def release(self, sid: str) -> None:
        """The session is over, its slot is free; any number of times, also for one that never had any."""
        holder = self._holders.pop(sid, None)
        if holder is not None:
            run, owner = holder
            self._slots.release(run)
            self._quotas.release(owner or run)
            self._show()

    async def start(self, instance: TaskInstance, *, run: str = "", owner: str = "") -> SessionRecord:
        """A new session of `instance`, for `run`, of the API key `owner`.

        Raises:
            As `begin`, within SANDBOX_START_TIMEOUT_S.
        """
        plan = TaskPlan(instance, self._workspaces, self._store, self._config.session_max_s)
        return await self.begin(plan, run=run, owner=owner, wait_s=self._config.start_timeout_s)

    async def begin(self, plan: Plan, *, run: str, owner: str = "", wait_s: float) -> SessionRecord:
        """A new session as `plan` says, for `run`. When the caller is cancelled, nothing is left of it.

        Raises:
            CapacityError: no slot, or no container within `wait_s` seconds; at once when too many wait, or while the
                engine does not answer or its disk is nearly full.
            OverQuota: the run has as many, or began as many lately, as it may.
            ImageUnavailable, EngineUnavailable, StateUnavailable, CatalogueUnavailable.
        """
        self._faults.check()
        self._quotas.begin(owner or run)  # given back by `_slot`, or at the session's end
        self.groups.arrived(plan.name, time.monotonic())
        start = _Start(plan.name, run, owner, Ticket(run))
        try:
            async with asyncio.timeout(wait_s), self._slot(start):
                return await self._begin_until_well(start, plan)
        except TimeoutError:
            within = f"no sandbox within {wait_s:g} s (waiting for: {start.stage}){self._room()}"
            raise self._refused(start, within, start.stage) from None
        except QueueFull:
            raise self._line_full(start) from None

    def _line_full(self, start: _Start) -> CapacityError:
        many = f"{self._slots.waiting} starts wait already (SANDBOX_START_QUEUE){self._room()}"
        return self._refused(start, many, "queue")

    def _room(self) -> str:
        return f"; {self.used} of {self._config.max_sessions} slots are in use on {self._config.node}"

    def _refused(self, start: _Start, detail: str, reason: str) -> CapacityError:
        ticket = start.ticket
        return CapacityError(detail, reason=reason, position=ticket.position, estimate_s=ticket.estimate_s)

    @asynccontextmanager
    async def place(self, record: SessionRecord) -> AsyncIterator[None]:
        """A slot for a session that is made anew here; the session's own after the body, free again if that raises."""
        start = _Start(record.instance_id, record.run, record.owner, Ticket(record.run))
        self._quotas.hold(record.owner or record.run)
        try:
            async with self._slot(start):
                start.sid = record.sid
                self._holders[record.sid] = record.run, record.owner
                yield
        except QueueFull:
            raise self._line_full(start) from None

    @asynccontextmanager
    async def _slot(self, start: _Start) -> AsyncIterator[None]:
        """A slot, for good unless the body raises; then what the run's quota counted of it is given back too."""
        try:
            with _timed(start, "queue"), telemetry.STARTS_WAITING.labels("slots").track_inprogress():
                asyncio.get_running_loop().call_soon(self._show)  # by then it waits
                await self._slots.acquire(start.ticket)
        except BaseException:
            self._quotas.release(start.owner or start.run)
            raise
        self._show()
        try:
            yield
        except BaseException:
            if start.sid:
                await asyncio.shield(self.release(start.sid))
            else:
                self._slots.release(start.run)
                self._quotas.release(start.owner or start.run)
            self._show()
            raise

    def _show(self) -> None:
        telemetry.SESSIONS_LIVE.set(self.used)
        telemetry.show_runs(self._slots.held, self._slots.waiting_by_run())

    async def _begin_until_well(self, start: _Start, plan: Plan) -> SessionRecord:
        """As `_begin`, again when the image was removed meanwhile, and for as long as the node is not well."""
        while True:
            for start.stage in self.faults:
                with _timed(start, "queue"), telemetry.STARTS_WAITING.labels(start.stage).track_inprogress():
                    await self._faults.gone()
            try:
                try:
                    return await self._begin(start, plan)
                except RepositoryUnavailable:  # it was tried often enough
                    raise
                except ImageUnavailable:  # somebody removed it since it was last used
                    return await self._begin(start, plan)
            except EngineUnavailable:
                if not self.faults:
                    raise
                log.info("start waits for the engine", name=start.name, run=start.run)

    async def _begin(self, start: _Start, plan: Plan) -> SessionRecord:
        start.stage, start.ticket = "image", Ticket(start.run)
        with _timed(start, "prepare"), telemetry.STARTS_WAITING.labels("image").track_inprogress():
            spec = await plan.spec()
        start.stage = "daemon"
        siblings = self.groups.remaining(plan.name)
        self.pool.want(plan.name, spec, siblings, for_s=self._config.pool_group_window_s, now=True)
        with _timed(start, "container"), telemetry.STARTS_WAITING.labels("daemon").track_inprogress():
            taken = await self.pool.take(spec, start.ticket)
        start.sid = taken.sid
        self._holders[taken.sid] = start.run, start.owner
        try:
            return await self._record(start, plan, taken.sandbox)
        except BaseException:
            await asyncio.shield(self._undo(taken))
            raise

    async def _undo(self, taken: Taken) -> None:
        """Its client is gone, or it could not be written down; what is left of it is the reaper's."""
        with suppress(ServiceError):
            await self._store.drop(taken.sid)  # it may have been written all the same
        with suppress(ServiceError):
            await self._runtime.remove(taken.sandbox.container_id)

    async def _record(self, start: _Start, plan: Plan, sandbox: Sandbox) -> SessionRecord:
        now = clock.now()
        record = SessionRecord(
            sid=start.sid,
            state=SessionState.LIVE,
            instance_id=plan.instance_id,
            node=self._config.node,
            container_id=sandbox.container_id,
            created_at=now,
            touched_at=now,
            deadline=now + plan.lasts_s,
            cwd=plan.cwd,
            run=start.run,
            owner=start.owner,
            timings_s={**start.timings_s, **{f"start_{stage}": seconds for stage, seconds in sandbox.boot_s.items()}},
        )
        with _timed(start, "record"):
            await plan.keep(record)
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
