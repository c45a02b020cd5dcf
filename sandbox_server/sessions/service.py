"""Operations on sessions (start, act, end, reward): the order of their steps and their answers on failure."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sandbox_server import clock, telemetry, traces
from sandbox_server.actions.batch import Command
from sandbox_server.actions.batch_json import outcome_of
from sandbox_server.catalogue.insight.listing import Listing, fits
from sandbox_server.catalogue.insight.records import Seen, SessionFilter
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem
from sandbox_server.errors import (
    ActionInterrupted,
    CapacityError,
    IsBox,
    MalformedRequest,
    OverQuota,
    SandboxLost,
    ServiceError,
    SessionBusy,
    SessionOver,
    SessionRestoring,
    SessionStillLive,
    StateUnavailable,
    Ungradable,
    UnknownInstance,
    UnknownNode,
    UnknownSession,
)
from sandbox_server.fleet.placement import Placement
from sandbox_server.lifecycle import OVER, SessionState
from sandbox_server.pool.lookahead import Lookahead
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord, TurnTokens, Verdict, VerdictName
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.rewards import RewardAnswer, Rewards
from sandbox_server.sessions import acting
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.base import ActionAnswer, Announced, BatchAnswer, PoolView, SessionView
from sandbox_server.sessions.config import ServiceConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ending import Ending
from sandbox_server.sessions.starts import Starts
from sandbox_server.sessions.together import together
from sandbox_server.state.nodes import NodeRecord, Nodes
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)

_OWNERS_KEPT = 100_000


class SessionService:
    """Implements `sessions.base.Sessions`."""

    def __init__(
        self,
        *,
        data: SessionData,
        starts: Starts,
        placement: Placement,
        nodes: Nodes,
        lookahead: Lookahead,
        acting: Acting,
        ending: Ending,
        rewards: Rewards,
        localizing: Localizing,
        listing: Listing,
        run_state: RunState,
        config: ServiceConfig,
    ) -> None:
        self._data = data
        self._starts = starts
        self._placement = placement
        self._nodes = nodes
        self._lookahead = lookahead
        self._acting = acting
        self._ending = ending
        self._rewards = rewards
        self._localizing = localizing
        self._listing = listing
        self._run_state = run_state
        self._config = config
        self._ends: dict[str, asyncio.Task[SessionRecord | None]] = {}
        self._owner_of: dict[str, str] = {}

    async def start(self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "") -> str:
        """See `sessions.base.Sessions.start`."""
        task = await self._startable(instance)
        if not idempotency_key:
            await self._placement.settle(task)
            return await self._start(task, run, owner)
        name = "\0".join((*([owner] if owner else []), run, task.instance_id, idempotency_key))
        known = await self._run_state.started(name)
        if known is not None:
            if (record := await self._data.store.session(known)) and record.state == SessionState.LIVE:
                return known
            await self._run_state.forget(name, known)
        await self._placement.settle(task)
        return await self._answered(name, await self._start(task, run, owner))

    async def _answered(self, start: str, sid: str) -> str:
        """The sid to return for a start with an idempotency key. If another attempt was faster, ends `sid`."""
        try:
            answer = await self._run_state.answer(start, sid)
        except StateUnavailable:
            return sid  # the session exists, but a retry would not find it
        except asyncio.CancelledError:
            self.end_apart(sid, "closed")
            raise
        if answer != sid:
            self.end_apart(sid, "closed")
        return answer

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = ""
    ) -> tuple[list[str], list[ServiceError]]:
        """See `sessions.base.Sessions.start_group`."""
        task = await self._startable(instance)
        await self._placement.settle(task, n)
        self._starts.groups.announce(task.instance_id, n, time.monotonic())
        return await together([self._start(task, run, owner) for _ in range(n)], self.close)

    async def look_ahead(self, instances: Sequence[int | str]) -> Announced:
        """See `sessions.base.Sessions.look_ahead`."""
        tasks, unknown = [], []
        for instance in instances:
            try:
                tasks.append(await self._instance(instance))
            except UnknownInstance:
                unknown.append(instance)
        places: dict[str, list[TaskInstance]] = {}
        for task in tasks:
            places.setdefault(await self._placement.choose(task), []).append(task)
        mine = places.pop(self._config.node, [])
        for node, theirs in places.items():
            await self._nodes.announce(node, [task.instance_id for task in theirs])
        queued = self._lookahead.add(mine)
        return Announced(len(tasks) - len(mine) + queued, tuple(unknown), len(mine) - queued)

    async def announced(self, instance_ids: Sequence[str]) -> None:
        """Prepare for starts of these instances, which other nodes expect to be placed here."""
        tasks = []
        for instance_id in instance_ids:
            with suppress(UnknownInstance):
                tasks.append(await self._data.instances.by_id(instance_id))
        self._lookahead.add(tasks)

    def pool(self) -> PoolView:
        """See `sessions.base.Sessions.pool`."""
        return PoolView(
            self._starts.pool.size, self._starts.pool.view(), self._lookahead.waiting, self._lookahead.failures
        )

    async def nodes(self) -> "list[NodeRecord]":
        """See `sessions.base.Sessions.nodes`."""
        return await self._nodes.alive()

    async def drain(self, node: str, *, begin: bool) -> None:
        """See `sessions.base.Sessions.drain`."""
        if await self._nodes.get(node) is None:
            raise UnknownNode(f"no node {node!r} has a heartbeat; GET /v1/nodes lists those that have")
        await (self._nodes.drain(node) if begin else self._nodes.drained(node))

    async def _instance(self, named: int | str) -> TaskInstance:
        return await (
            self._data.instances.by_hash(named) if isinstance(named, int) else self._data.instances.by_id(named)
        )

    async def _startable(self, named: int | str) -> TaskInstance:
        try:
            task = await self._instance(named)
        except UnknownInstance:
            telemetry.STARTS.labels("unknown_instance").inc()
            raise
        if task.grader is None and not self._config.allow_ungradable:
            telemetry.STARTS.labels(Ungradable.code).inc()
            raise Ungradable(
                f"{task.instance_id} cannot be graded: {task.ungradable_because or 'its row names no grader'};"
                " SANDBOX_ALLOW_UNGRADABLE=1 starts it all the same"
            )
        if task.localizes:
            self._localizing.composition(task)  # an instance that cannot be scored fails now, not at its end
        return task

    async def _start(self, task: TaskInstance, run: str, owner: str) -> str:
        arrived = clock.now()
        try:
            record = await self._starts.start(task, run=run, owner=owner)
        except ServiceError as error:
            traces.failed_start(task.instance_id, run, began=arrived, error=error.code)
            telemetry.STARTS.labels(error.code).inc()
            if error.reason:
                telemetry.STARTS_REFUSED.labels(error.reason).inc()
            level = log.warning if isinstance(error, CapacityError | OverQuota) else log.error
            level("start failed", instance_id=task.instance_id, run=run, code=error.code, error=error.detail)
            raise
        telemetry.STARTS.labels("ok").inc()
        log.info("started", sid=record.sid, instance_id=record.instance_id, run=run)
        self._rewards.prepare(task)
        return record.sid

    async def act(self, sid: str, content: str, *, idempotency_key: str = "") -> ActionAnswer:
        """See `sessions.base.Sessions.act`."""
        try:
            answer = await self._acting.act(sid, content, idempotency_key)
            if answer.tool == "finish" and (record := await self._data.store.session(sid)):  # it will end soon
                self._rewards.expect(await self._data.instances.by_id(record.instance_id), sid)
            return answer
        except SandboxLost as error:
            await self._ending.lose(sid, error.detail)
            return acting.told(error)
        except (UnknownSession, SessionOver, SessionBusy, SessionRestoring) as error:
            return acting.told(error)
        except ServiceError as error:
            telemetry.INFRA_ERRORS.labels(error.code).inc()
            log.error("action failed", sid=sid, code=error.code, error=error.detail)
            return acting.told(error)

    async def exec(self, sid: str, commands: Sequence[Command], *, idempotency_key: str = "") -> BatchAnswer:
        """See `sessions.base.Sessions.exec`."""
        try:
            answer = await self._acting.exec(sid, commands, idempotency_key)
        except SandboxLost as error:
            await self._ending.lose(sid, error.detail)
            raise
        outcome = outcome_of(answer.content)
        if outcome is None:
            raise MalformedRequest("This Idempotency-Key stands for an action that is no batch; take another one.")
        if outcome.results is None:
            raise ActionInterrupted(
                f"{outcome.notice or 'The service was interrupted while this batch ran.'} Send it with another"
                " Idempotency-Key to run it again."
            )
        return BatchAnswer(outcome.results, answer.seq, outcome.notice)

    async def postprocess(self, sid: str) -> SessionRecord | None:
        """See `sessions.base.Sessions.postprocess`."""
        return await self.end(sid, "postprocess")

    async def close(self, sid: str) -> SessionRecord | None:
        """See `sessions.base.Sessions.close`."""
        return await self.end(sid, "closed")

    async def end(self, sid: str, reason: str) -> SessionRecord | None:
        """End the session for `reason` and begin its grading."""
        record = await self._ending.end(sid, reason)
        if (
            record is None
            or not record.kind.is_rollout
            or record.state != SessionState.ENDED
            or self._rewards.known(sid)
        ):
            return record
        if await self._data.history.graded(sid) is None:
            self._rewards.begin(record)
        return record

    async def reward(self, sid: str) -> RewardAnswer:
        """See `sessions.base.Sessions.reward`."""
        began = time.monotonic()
        wait_s = self._config.reward_wait_s  # in total: a client whose own limit passes first would record 0.0
        record = await self._data.session(sid)
        if record is not None and not record.kind.is_rollout:
            cause = f"session {sid} is a box: nothing of it is graded"
            return RewardAnswer(Verdict(VerdictName.UNKNOWN_SESSION, mask=True, cause=cause), 0.0)
        if record is not None and record.state not in OVER:
            ending = self.end_apart(sid, "reward")
            await asyncio.wait({ending}, timeout=wait_s)
            if not ending.done():
                cause = f"an action or the end of the session is under way for {wait_s:g} s; ask again"
                return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=cause), 0.0)
            record = ending.result()
        if record is None:
            cause = "no such session: its start failed, or its records were removed"
            return RewardAnswer(Verdict(VerdictName.UNKNOWN_SESSION, mask=True, cause=cause), 0.0)
        return await self._rewards.answer(record, wait_s=max(0.0, wait_s - (time.monotonic() - began)))

    def end_apart(self, sid: str, reason: str) -> asyncio.Task[SessionRecord | None]:
        """End the session in a task that survives the cancellation of a request; concurrent requests share it."""
        task = self._ends.get(sid)
        if task is None:
            task = self._ends[sid] = asyncio.create_task(self.end(sid, reason), name=f"end-{sid}")
            task.add_done_callback(lambda done: self._ended_apart(sid, done))
        return task

    def _ended_apart(self, sid: str, task: asyncio.Task[SessionRecord | None]) -> None:
        del self._ends[sid]
        if not task.cancelled() and (error := task.exception()):
            log.warning("session not ended; the next request or the reaper tries again", sid=sid, error=str(error))

    async def report(
        self,
        sid: str,
        *,
        rewards: Sequence[RewardItem] | None = None,
        tokens: Sequence[TurnTokens] | None = None,
        written: AnswerFormat | None = None,
    ) -> None:
        """See `sessions.base.Sessions.report`."""
        record = await self._known(sid)
        if record.state != SessionState.LIVE:
            raise SessionOver(f"session {sid} is {record.state}: its grading has begun; report before /postprocess")
        await self._localizing.rollouts.report(sid, rewards=rewards, tokens=tokens, written=written)

    async def owner(self, sid: str) -> str | None:
        """See `sessions.base.Sessions.owner`."""
        if (known := self._owner_of.get(sid)) is not None:
            return known
        record = await self._data.session(sid)
        if record is None:
            return None
        if len(self._owner_of) >= _OWNERS_KEPT:
            self._owner_of.clear()
        self._owner_of[sid] = record.owner
        return record.owner

    async def view(self, sid: str) -> SessionView:
        """See `sessions.base.Sessions.view`."""
        record = await self._known(sid)
        graded, patch, metrics = await asyncio.gather(
            self._data.history.graded(sid), self._data.history.patch(sid), self._metrics(record)
        )
        graded_s = {} if graded is None else graded.verdict.timings_s
        return SessionView(record, graded, patch, {**record.timings_s, **graded_s}, metrics)

    async def state(self, sid: str) -> str:
        """See `sessions.base.Sessions.state`."""
        return (await self._known(sid)).state

    async def _metrics(self, record: SessionRecord) -> dict[str, object]:
        instance = None
        with suppress(UnknownInstance):  # it was removed from the catalogue
            instance = await self._data.instances.by_id(record.instance_id)
        return await self._localizing.metrics(record, instance)

    async def patch(self, sid: str) -> PatchRecord:
        """See `sessions.base.Sessions.patch`."""
        record = await self._known(sid)
        if not record.kind.is_rollout:
            raise IsBox(f"session {sid} is a box: no patch is taken of it")
        patch = await self._data.history.patch(sid)
        if patch is None:
            raise SessionStillLive(
                f"session {sid} is {record.state}"
                + (": its patch was never taken" if record.state == SessionState.LOST else "; POST /postprocess first")
            )
        return patch

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """See `sessions.base.Sessions.actions`."""
        journals, record = self._localizing.journals, await self._known(sid)
        if limit is not None:
            return await journals.part(record, after=after, limit=limit)
        return [action for action in await journals.of(record) if action.seq > after]

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> "list[Seen]":
        """See `sessions.base.Sessions.list`."""
        # SQL has a session's start and end; its state in between is in Redis
        kept = SessionState.LIVE.value if wanted.state == SessionState.ENDING else wanted.state
        found = await self._listing.sessions(replace(wanted, state=kept), limit=limit)
        seen = {one.record.sid: one for one in found}
        # if the page is full, older sessions belong to the next page
        oldest = min((one.record.created_at for one in found), default=0.0) if len(found) == limit else 0.0
        for record in await self._present(found, wanted):
            if record.sid in seen or record.created_at >= oldest:
                seen[record.sid] = Seen(record, None)
        now = sorted(seen.values(), key=lambda one: (one.record.created_at, one.record.sid), reverse=True)
        return [one for one in now if fits(one.record, wanted)][:limit]

    async def _present(self, found: "Sequence[Seen]", wanted: SessionFilter) -> "Sequence[SessionRecord]":
        """Sessions that are not over, from Redis: all, or for a narrow filter only those in `found`."""
        if wanted.instance is None and wanted.before is None and wanted.verdict is None and wanted.masked is None:
            return await self._data.store.live()
        going = [one.record.sid for one in found if one.record.ended_at == 0]
        records = await asyncio.gather(*(self._data.store.session(sid) for sid in going))
        return [record for record in records if record is not None]

    async def _known(self, sid: str) -> SessionRecord:
        record = await self._data.session(sid)
        if record is None:
            raise UnknownSession(f"no session {sid}")
        return record
