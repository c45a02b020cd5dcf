"""Starts sessions: acquires a slot, prepares the image, takes a container from the pool, writes the record."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace

from sandbox_server import clock, telemetry, traces
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
from sandbox_server.pool.bucket import TakenContainer
from sandbox_server.pool.fair_queue import FairQueue, QueueFull, Ticket
from sandbox_server.pool.groups import Groups
from sandbox_server.pool.pool import Pool, PoolConfig
from sandbox_server.pool.quotas import Quotas
from sandbox_server.pool.spending import Spending
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, Runtime, Sandbox
from sandbox_server.sandbox.faults import Faults
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.plan import Plan, TaskPlan
from sandbox_server.state.store import Store

log = telemetry.logger(__name__)

GRACE_S = 1800.0
"""Added to a session's deadline for the deadline on its container's label: time for its capture and removal."""


@dataclass(frozen=True, slots=True)
class StartConfig:
    """Bounds of the starts on one node; times in seconds, from the settings of the same names."""

    node: str
    max_sessions: int
    start_queue: int
    start_timeout_s: float
    session_max_s: float
    run_sessions: int
    run_starts_per_min: int
    pool_group: int
    pool_group_window_s: float
    pool: PoolConfig


@dataclass(slots=True)
class _Start:
    """A start in progress. It holds a slot until its session takes the slot over."""

    name: str
    """Its plan's name."""
    run: str
    owner: str
    ticket: Ticket
    """Its ticket in the queue where it waits or last waited."""
    stage: str = "slots"
    """What the start waits for: slots, image, daemon (its container), or the end of a fault: daemon, disk, data."""
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
        spending: Spending | None = None,
    ) -> None:
        """While there are `faults`, nothing new starts."""
        self._runtime = runtime
        self._workspaces = workspaces
        self._store = store
        self._log = log
        self._config = config
        self._faults = faults or Faults()
        self._spending = spending
        self._slots = FairQueue(config.max_sessions, most_waiting=config.start_queue)
        self._quotas = Quotas(sessions=config.run_sessions, starts_per_min=config.run_starts_per_min)
        self._shows = False
        """The gauges will be set in this round of the event loop."""
        self._holders: dict[str, tuple[str, str]] = {}
        """sid -> (run, owner) of each session that holds a slot."""
        self.groups = Groups(first_guess=config.pool_group, window_s=config.pool_group_window_s)
        """Estimates how many starts of the same instance follow each other."""
        self.pool = Pool(
            runtime,
            config.pool,
            # when the disk is nearly full, parked containers are removed and none is parked
            room=lambda: 0 if "disk" in self.faults else config.max_sessions - self.used,
        )
        """Source of the sessions' containers."""

    @property
    def used(self) -> int:
        """Slots in use: live sessions and starts under way."""
        return self._slots.used

    @property
    def sids(self) -> frozenset[str]:
        """Sids of the sessions that hold a slot here."""
        return frozenset(self._holders)

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot. A start that waits for its image or container already has one."""
        return self._slots.waiting

    def parked(self) -> dict[str, int]:
        """Instance id -> containers ready for a start; instances without one are left out."""
        parked: Counter[str] = Counter()
        for bucket in self.pool.view():
            parked.update(dict.fromkeys(bucket.instances, bucket.parked))
        return {instance_id: count for instance_id, count in parked.items() if count}

    @property
    def faults(self) -> Mapping[str, str]:
        """Fault (daemon, disk, data) -> the reason why nothing new starts here; empty when nothing is wrong."""
        return self._faults.present

    async def adopt(self, sessions: Iterable[SessionRecord]) -> None:
        """Give the sessions of a previous server process their slots again, except those that sleep."""
        for session in sessions:
            if session.sid not in self._holders and not session.asleep:
                self._holders[session.sid] = session.run, session.owner
                self._slots.hold(session.run)
                self._quotas.hold(session.owner or session.run)
        self._show()

    async def release(self, sid: str) -> None:
        """Free the slot of a session that is over. Idempotent; a sid without a slot is ignored."""
        holder = self._holders.pop(sid, None)
        if holder is not None:
            run, owner = holder
            self._slots.release(run)
            self._quotas.release(owner or run)
            self._show()

    async def start(
        self, instance: TaskInstance, *, run: str = "", owner: str = "", plan: Plan | None = None
    ) -> SessionRecord:
        """Start a session of `instance` for `run` and the API key `owner`, within SANDBOX_START_TIMEOUT_S.

        `plan`: how it begins, if not in a fresh container of the instance.

        Raises:
            As `begin`.
        """
        plan = plan or TaskPlan(instance, self._workspaces, self._store, self._config.session_max_s)
        return await self.begin(plan, run=run, owner=owner, wait_s=self._config.start_timeout_s)

    async def begin(self, plan: Plan, *, run: str, owner: str = "", wait_s: float) -> SessionRecord:
        """Start a session by `plan` for `run`. If the caller is cancelled, the session and its container are removed.

        Raises:
            CapacityError: no slot or no container within `wait_s` seconds; at once when the queue is full, or while
                the engine does not answer or its disk is nearly full.
            OverQuota: the run has reached its bound of sessions, of starts per minute, or of what it may use.
            ImageUnavailable, EngineUnavailable, StateUnavailable, CatalogueUnavailable.
        """
        self._faults.check()
        if self._spending is not None:
            await self._spending.check(owner or run)
        self._quotas.begin(owner or run)  # released by `_slot`, or at the session's end
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
        """A slot for a session that is restored or wakes here. It keeps the slot, unless the body raises."""
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
    async def container(self, spec: ContainerSpec, record: SessionRecord) -> AsyncIterator[Sandbox]:
        """A container for a session that has a place: a parked one, or a new one. If the body raises, it is removed.

        Raises:
            As `Pool.take` and, at the end, `Runtime.assign`.
        """
        taken = await self.pool.take(spec, Ticket(record.run))
        # this takes the engine some 10 ms, during which the body can use the container
        assigning = asyncio.create_task(self._runtime.assign(taken.sandbox.container_id, record.sid))
        try:
            yield taken.sandbox
            await assigning
        except BaseException:
            assigning.cancel()
            await asyncio.gather(assigning, return_exceptions=True)
            await asyncio.shield(self._undo(taken))
            raise

    @asynccontextmanager
    async def _slot(self, start: _Start) -> AsyncIterator[None]:
        """Acquire a slot, which outlasts the body. If the body raises, release the slot and the run's quota."""
        try:
            with _timed(start, "queue"), telemetry.STARTS_WAITING.labels("slots").track_inprogress():
                self._show()  # the gauges are set in the next round of the loop, when this start is in the queue
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
        if not self._shows:  # once for all starts of a group
            self._shows = True
            asyncio.get_running_loop().call_soon(self._set_gauges)

    def _set_gauges(self) -> None:
        self._shows = False
        telemetry.SESSIONS_LIVE.set(self.used)
        telemetry.show_runs(self._slots.held, self._slots.waiting_by_run())

    async def _begin_until_well(self, start: _Start, plan: Plan) -> SessionRecord:
        """As `_begin`, but waits while the node has faults, and retries if the image was removed meanwhile."""
        while True:
            for start.stage in self.faults:
                with _timed(start, "queue"), telemetry.STARTS_WAITING.labels(start.stage).track_inprogress():
                    await self._faults.gone()
            try:
                try:
                    return await self._begin(start, plan)
                except RepositoryUnavailable:  # the fetch has its own retries
                    raise
                except ImageUnavailable:  # the image may have been removed meanwhile: make it once more
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

    async def _undo(self, taken: TakenContainer) -> None:
        """Drop the record and remove the container of a start that failed or was cancelled.

        The reaper removes what an error leaves behind.
        """
        with suppress(ServiceError):
            await self._store.drop(taken.sid)  # the record may have been written despite the error
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
            traceparent=traces.client(),
            timings_s={**start.timings_s, **{f"start_{stage}": seconds for stage, seconds in sandbox.boot_s.items()}},
        )
        with _timed(start, "record"):
            record = await plan.begin(record, sandbox)
        self._log.add(record)
        if traces.is_enabled():
            traces.start(replace(record, timings_s={**record.timings_s, **start.timings_s}))
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
