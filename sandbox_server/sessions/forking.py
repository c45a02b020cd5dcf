"""Copies of sessions: a session, live or ended, goes on as n, from its last action or an earlier one.

A copy is a session like any other. It starts in a container of the same image, parked or new, which is given the state
of a checkpoint; actions after that checkpoint are run again. Its journal begins with the parent's actions, so that it
can be restored, scored and copied like its parent.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import Seen
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.capture import capture, restore
from sandbox_server.checkpoints.checkpoint import Checkpoint, Part
from sandbox_server.checkpoints.store import Checkpoints, Damaged
from sandbox_server.errors import (
    IsBox,
    MalformedRequest,
    NotForkable,
    OwnedElsewhere,
    ServiceError,
    SessionBusy,
    SessionOver,
    UnknownInstance,
    UnknownSession,
)
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox
from sandbox_server.scoring.journals import Journals, kept, undone_at, undone_ranges
from sandbox_server.sessions.acting import Acting, refusal
from sandbox_server.sessions.config import ForkConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.plan import TaskPlan
from sandbox_server.sessions.replay import Replay, how_they_ended
from sandbox_server.sessions.starts import Starts
from sandbox_server.sessions.together import together
from sandbox_server.state.runs import RunState

log = telemetry.logger(__name__)

_ANCESTORS = 64  # looked through for a checkpoint
_DAMAGED = 2  # damaged checkpoints of one request that are replaced by an older one


@dataclass(frozen=True, slots=True)
class Origin:
    """Where copies begin."""

    parent: SessionRecord
    instance: TaskInstance
    actions: Sequence[ActionRecord]
    """The parent's actions that the copies begin with."""
    checkpoint: Checkpoint | None = None
    """None: the first action is run again too."""
    undone: str = ""
    """`SessionRecord.undone`, as it was then."""

    @property
    def at(self) -> int:
        """Number of the action after which the copies go on."""
        return len(self.actions)

    @property
    def again(self) -> Sequence[ActionRecord]:
        """The actions that must be run again."""
        return kept(self.actions[self.checkpoint.seq if self.checkpoint else 0 :], self.undone)


class Forking:
    """Makes copies of sessions, on this node."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        workspaces: Workspaces,
        starts: Starts,
        placement: Placement,
        acting: Acting,
        replay: Replay,
        listing: Listing,
        checkpoints: Checkpoints,
        run_state: RunState,
        config: ForkConfig,
        close: Callable[[str], Awaitable[object]],
    ) -> None:
        """`close(sid)` ends a copy that nobody will use."""
        self._runtime = runtime
        self._data = data
        self._workspaces = workspaces
        self._starts = starts
        self._placement = placement
        self._acting = acting
        self._replay = replay
        self._listing = listing
        self._checkpoints = checkpoints
        self._run_state = run_state
        self._config = config
        self._close = close
        self._journals = Journals(data.store, data.history)

    async def fork(
        self, sid: str, n: int, *, at: int | None = None, idempotency_key: str = ""
    ) -> tuple[list[str], list[ServiceError]]:
        """Start `n` sessions that go on after action `at` of this one (None: its last one, 0: before the first).

        They belong to the run and the API key of the parent. Returns their sids, and the errors of those that failed.
        A request with the same `idempotency_key` within some minutes returns the same sids.

        Raises:
            UnknownSession, IsBox, MalformedRequest (`at`), SessionBusy, SandboxLost: nothing was started.
            NotForkable: what is in the sandbox cannot be copied. As `Starts.begin`, if no copy starts. OwnedElsewhere.
        """
        parent = await self._data.session(sid)
        if parent is None:
            raise UnknownSession(f"no session {sid}")
        if not parent.kind.is_rollout:
            raise IsBox(f"session {sid} is a box: only sessions of instances are copied")
        try:
            instance = await self._data.instances.by_id(parent.instance_id)
        except UnknownInstance as error:
            raise NotForkable(f"the instance of session {sid} was removed: {error.detail}") from error
        request = "\0".join(("fork", sid, str(n), str(at), idempotency_key)) if idempotency_key else ""
        if request and (known := await self._run_state.started(request)):
            return known.split(), []
        sids, failed = await self._undamaged(parent, instance, n, at)
        if request:
            answer = (await self._run_state.answer(request, " ".join(sids))).split()
            if answer != sids:  # another attempt was faster
                await asyncio.gather(*(self._close(one) for one in sids), return_exceptions=True)
                return answer, []
        return sids, failed

    async def tree(self, sid: str) -> list[Seen]:
        """The session, those that it was copied from, and all copies of these, the oldest first.

        Raises:
            UnknownSession, CatalogueUnavailable, StateUnavailable.
        """
        family = await self._listing.family(sid)
        if not family:
            raise UnknownSession(f"no session {sid}")
        present = [
            (await self._data.store.session(seen.record.sid)) if seen.record.ended_at == 0 else None for seen in family
        ]
        return [replace(seen, record=now or seen.record) for seen, now in zip(family, present, strict=True)]

    async def _undamaged(
        self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None
    ) -> tuple[list[str], list[ServiceError]]:
        for _ in range(_DAMAGED):
            with suppress(Damaged):
                return await self._fork(parent, instance, n, at)
        return await self._fork(parent, instance, n, at)

    async def _fork(
        self, parent: SessionRecord, instance: TaskInstance, n: int, at: int | None
    ) -> tuple[list[str], list[ServiceError]]:
        if parent.state == SessionState.LIVE and at in (None, parent.actions):
            origin = await self._present(parent.sid, instance, at)
        else:
            await self._placement.settle(instance, n)
            origin = await self._past(parent, instance, at)
        self._starts.groups.announce(instance.instance_id, n, time.monotonic())
        if not origin.again:
            return await together([self._copy(origin) for _ in range(n)], self._close)
        # the actions run again only once: the other copies begin with what the first one came to
        differences: list[str] = []
        sid = await self._copy(origin, differences)
        if n == 1:
            return [sid], []
        try:
            origin = await self._as_copy(origin, sid, differences)
            sids, failed = await together([self._copy(origin) for _ in range(n - 1)], self._close)
        except ServiceError as error:
            return [sid], [error] * (n - 1)
        except BaseException:
            await self._close(sid)
            raise
        return [sid, *sids], failed

    # ---- where copies begin

    async def _present(self, sid: str, instance: TaskInstance, at: int | None) -> Origin:
        """A new checkpoint of a live session."""
        await self._acting.sandbox(sid)  # restored here first, if its node has died
        async with self._held(sid) as record:
            if at is not None and at != record.actions:
                raise SessionBusy(f"session {sid} went on to action {record.actions} meanwhile; send the request again")
            sandbox = await self._runtime.attach(record.container_id)
            checkpoint = await self._take(record, sandbox, record.sid, instance)
        actions = await self._journals.complete(record)
        return Origin(record, instance, actions[: record.actions], checkpoint, undone=record.undone)

    @asynccontextmanager
    async def _held(self, sid: str) -> AsyncIterator[SessionRecord]:
        """A live session of this node, between two actions."""
        store = self._data.store
        async with store.lock(sid, self._config.wait_s):
            record = await store.session(sid)
            if record is None or record.state != SessionState.LIVE:
                raise refusal(record)
            if record.node != self._config.node:
                raise OwnedElsewhere(record.node)
            if await store.interrupted(sid):
                raise SessionBusy(
                    f"session {sid} was interrupted during an action; its next action settles that, copy it then"
                )
            yield record

    async def _past(self, parent: SessionRecord, instance: TaskInstance, at: int | None) -> Origin:
        """The nearest checkpoint of a session or its ancestors, and the actions behind it."""
        if parent.state == SessionState.LOST and at is None:
            raise SessionOver(f"session {parent.sid} was lost; name the action to go on from: `at`")
        actions = await self._journals.complete(parent)
        wanted = parent.actions if at is None else at
        if wanted > len(actions):
            raise MalformedRequest(f"at: session {parent.sid} has {len(actions)} actions, not {wanted}")
        return await self.origin(parent, instance, actions[:wanted])

    async def origin(self, parent: SessionRecord, instance: TaskInstance, actions: Sequence[ActionRecord]) -> Origin:
        """Where a copy begins that has these actions of `parent`. Raises NotForkable: it would take too long."""
        image = (await self._workspaces.prepared(instance)).image
        undone = undone_at(parent.undone, len(actions))
        checkpoint, of, most = None, parent, len(actions)
        for _ in range(_ANCESTORS):
            checkpoint = self._checkpoints.nearest(of.sid, most, image, undone=undone_ranges(undone))
            above = await self._data.session(of.parent) if of.parent and checkpoint is None else None
            if above is None:
                break
            of, most = above, min(most, of.forked_at)
        origin = Origin(parent, instance, actions, checkpoint, undone=undone)
        took_s = sum(action.duration_s for action in origin.again)
        if took_s > self._config.replay_timeout_s:
            raise NotForkable(
                f"{len(origin.again)} actions would have to run again, which took {took_s:.0f} s: more than"
                f" {self._config.replay_timeout_s:g} s (SANDBOX_RESTORE_TIMEOUT_S)"
            )
        return origin

    async def _as_copy(self, origin: Origin, first: str, differences: Sequence[str]) -> Origin:
        """The origin of further copies: the state that the first one came to by running actions again."""
        async with self._held(first) as record:  # it has as many actions as are its parent's
            sandbox = await self._runtime.attach(record.container_id)
            checkpoint = await self._take(record, sandbox, origin.parent.sid, origin.instance, differences)
        return replace(origin, checkpoint=checkpoint)

    async def _take(
        self,
        record: SessionRecord,
        sandbox: Sandbox,
        of: str,
        instance: TaskInstance,
        differences: Sequence[str] = (),
    ) -> Checkpoint:
        """A checkpoint of the sandbox, stored as one of session `of`. The caller holds `record`."""
        began = time.monotonic()
        prepared = await self._workspaces.prepared(instance)
        bound_s = self._config.checkpoint_timeout_s
        async with self._checkpoints.writing() as writing:
            left_out = await capture(sandbox, self._runtime.outside, writing, timeout_s=bound_s)
            await writing.add(Part.UNDO, await self._data.store.history(record.sid).export())
            checkpoint = Checkpoint(
                sid=of,
                seq=record.actions,
                image=prepared.image,
                made_at=clock.now(),
                talk_turns=record.talk_turns,
                left_out=left_out,
                differences=tuple(differences),
            )
            checkpoint = await self._checkpoints.keep(writing, checkpoint)
        telemetry.CHECKPOINT_SECONDS.labels("take").observe(time.monotonic() - began)
        return checkpoint

    # ---- copies

    async def _copy(self, origin: Origin, differences: list[str] | None = None) -> str:
        """Start a copy; its sid. Adds to `differences` those of the actions that were run again."""
        parent = origin.parent
        plan = _Plan(self, origin, self._workspaces, self._data, self._config.session_max_s)
        wait_s = self._config.start_timeout_s + sum(action.duration_s for action in origin.again)
        try:
            record = await self._starts.begin(plan, run=parent.run, owner=parent.owner, wait_s=wait_s)
        except ServiceError as error:
            telemetry.FORKS.labels(error.code).inc()
            log.warning("copy failed", parent=parent.sid, at=origin.at, code=error.code, error=error.detail)
            raise
        if differences is not None:
            differences += plan.differences
        telemetry.FORKS.labels("ok").inc()
        log.info("copied", sid=record.sid, parent=parent.sid, at=origin.at)
        return record.sid

    async def fill(
        self, record: SessionRecord, sandbox: Sandbox, origin: Origin, *, subject: str
    ) -> tuple[SessionRecord, Sequence[str]]:
        """Bring a fresh container to where the origin is; return the session's record, and what ended otherwise.

        `subject`: what the first observation tells of, `This sandbox is a copy`.

        Raises:
            Damaged: the checkpoint is not whole. NotForkable, StateUnavailable, SandboxLost, EngineUnavailable.
        """
        began = time.monotonic()
        checkpoint, history = origin.checkpoint, self._data.store.history(record.sid)
        if checkpoint is not None:
            await restore(sandbox, checkpoint, self._checkpoints, timeout_s=self._config.checkpoint_timeout_s)
            undo = [block async for block in self._checkpoints.read(checkpoint, Part.UNDO)]
            await history.put(b"".join(undo))
        talked = replace(record, talk_turns=checkpoint.talk_turns if checkpoint else 0)
        replayed = await self._replay.run(sandbox, talked, origin.instance, origin.again)
        telemetry.CHECKPOINT_SECONDS.labels("restore").observe(time.monotonic() - began)
        differences = [*(checkpoint.differences if checkpoint else ()), *replayed.differences]
        filled = replace(
            record,
            parent=origin.parent.sid,
            forked_at=origin.at,
            actions=origin.at,
            undone=origin.undone,
            talk_turns=replayed.talk_turns,
            cwd=sandbox.shell.cwd or record.cwd,
            notice=_notice(subject, checkpoint, differences),
            differences=len(differences),
        )
        return filled, differences


def _notice(subject: str, checkpoint: Checkpoint | None, differences: Sequence[str]) -> str:
    """What the first observation tells where the state is not all that it was; else ""."""
    if differences:
        return f"[{subject}. Actions were run again for it, {how_they_ended(differences)}.]"
    if checkpoint is None or not checkpoint.left_out:
        return ""
    lacks = ", ".join(checkpoint.left_out)
    return f"[{subject}, with the state after action {checkpoint.seq}. It does not have: {lacks}.]"


class _Plan(TaskPlan):
    """The plan of a copy."""

    def __init__(
        self, forking: Forking, origin: Origin, workspaces: Workspaces, data: SessionData, lasts_s: float
    ) -> None:
        super().__init__(origin.instance, workspaces, data.store, lasts_s)
        self._forking = forking
        self._origin = origin
        self.differences: Sequence[str] = ()
        """Of the actions that were run again, once it has begun."""

    async def begin(self, record: SessionRecord, sandbox: Sandbox) -> SessionRecord:
        """See `sessions.plan.Plan.begin`; raises as `Forking.fill`."""
        copy, self.differences = await self._forking.fill(
            record, sandbox, self._origin, subject="This sandbox is a copy"
        )
        journal = [replace(action, sid=copy.sid, idempotency_key="") for action in self._origin.actions]
        await self._store.rebuild(copy, journal, to_sql=True)
        return copy
