"""Starts sessions of instances: each on the node where it belongs, a repeated request only once."""

import asyncio
import time

from sandbox_server import clock, telemetry, traces
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import (
    CapacityError,
    RequestError,
    ServiceError,
    StateUnavailable,
    Ungradable,
    UnknownInstance,
)
from sandbox_server.fleet.placement import Placement
from sandbox_server.lifecycle import SessionState
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.rewards import Rewards
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ends import Ends
from sandbox_server.starts.start_all import Started, idempotent_start, start_all
from sandbox_server.starts.starts import Starts
from sandbox_server.starts.steps import Steps
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)


class TaskStarts:
    """Finds the instance, checks that it can be scored, and has `Starts` make its session."""

    def __init__(
        self,
        data: SessionData,
        starts: Starts,
        placement: Placement,
        steps: Steps,
        rewards: Rewards,
        localizing: Localizing,
        run_state: RunState,
        ends: Ends,
        *,
        allow_ungradable: bool,
    ) -> None:
        """`allow_ungradable`: whether instances that cannot be graded start (SANDBOX_ALLOW_UNGRADABLE)."""
        self._data = data
        self._starts = starts
        self._placement = placement
        self._steps = steps
        self._rewards = rewards
        self._localizing = localizing
        self._run_state = run_state
        self._ends = ends
        self._allow_ungradable = allow_ungradable

    async def start(
        self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "", after: str = ""
    ) -> str:
        """See `sessions.base.Sessions.start`."""
        task = await self._startable(instance)
        if not idempotency_key:
            await self._placement.settle(task)
            return await self._start(task, run, owner, after)
        name = _name(owner, run, task.instance_id, idempotency_key)
        known = await self._run_state.started(name)
        if known is not None:
            if (record := await self._data.store.session(known)) and record.state == SessionState.LIVE:
                return known
            await self._run_state.forget(name, known)
        await self._placement.settle(task)
        return await self._answered(name, await self._start(task, run, owner, after))

    async def give_back(self, sid: str, *, idempotency_key: str = "") -> bool:
        """See `sessions.base.Sessions.give_back`."""
        if idempotency_key and (record := await self._data.store.session(sid)):
            name = _name(record.owner, record.run, record.instance_id, idempotency_key)
            if not await self._run_state.give_back(name, sid):
                return False
        await self._ends.close(sid)
        return True

    async def _answered(self, start: str, sid: str) -> str:
        """The sid to return for a start with an idempotency key. If another attempt was faster, ends `sid`."""
        try:
            answer = await self._run_state.answer(start, sid)
        except StateUnavailable:
            return sid  # the session exists, but a retry would not find it
        except asyncio.CancelledError:
            self._ends.end_detached(sid, "closed")
            raise
        if answer != sid:
            self._ends.end_detached(sid, "closed")
        return answer

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = "", idempotency_key: str = ""
    ) -> Started:
        """See `sessions.base.Sessions.start_group`."""
        task = await self._startable(instance)
        name = _name(owner, run, task.instance_id, f"{n}\0{idempotency_key}") if idempotency_key else ""

        async def start() -> Started:
            await self._placement.settle(task, n)
            self._starts.groups.announce(task.instance_id, n, time.monotonic())
            return await start_all([self._start(task, run, owner) for _ in range(n)], self._ends.close)

        return await idempotent_start(name, self._run_state, start, self._ends.close)

    async def _startable(self, named: int | str) -> TaskInstance:
        try:
            task = await self._data.instances.named(named)
        except UnknownInstance:
            telemetry.STARTS.labels("unknown_instance").inc()
            raise
        if task.grader is None and not self._allow_ungradable:
            telemetry.STARTS.labels(Ungradable.code).inc()
            raise Ungradable(
                f"{task.instance_id} cannot be graded: {task.ungradable_because or 'its row names no grader'};"
                " SANDBOX_ALLOW_UNGRADABLE=1 starts it anyway"
            )
        if task.localizes:
            self._localizing.composition(task)  # an instance that cannot be scored fails now, not at its end
        return task

    async def _start(self, task: TaskInstance, run: str, owner: str, after: str = "") -> str:
        arrived = clock.now()
        try:
            plan = await self._steps.plan(task, after) if task.step or after else None
            record = await self._starts.start(task, run=run, owner=owner, plan=plan)
        except ServiceError as error:
            traces.failed_start(task.instance_id, run, began=arrived, error=error.code)
            telemetry.STARTS.labels(error.code).inc()
            if error.reason:
                telemetry.STARTS_REFUSED.labels(error.reason).inc()
            level = log.warning if isinstance(error, CapacityError | RequestError) else log.error
            level("start failed", instance_id=task.instance_id, run=run, code=error.code, error=error.detail)
            raise
        telemetry.STARTS.labels("ok").inc()
        log.info("started", sid=record.sid, instance_id=record.instance_id, run=run)
        self._rewards.prepare(task)
        return record.sid


def _name(owner: str, run: str, instance_id: str, idempotency_key: str) -> str:
    """Name of the start that repeated requests share."""
    return "\0".join((*([owner] if owner else []), run, instance_id, idempotency_key))
