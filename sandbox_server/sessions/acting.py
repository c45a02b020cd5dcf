"""Runs one action: its text is parsed and run, and its observation is written to the journal."""

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast
from weakref import WeakKeyDictionary

from sandbox_server import clock, telemetry, traces
from sandbox_server.actions import batch_json
from sandbox_server.actions.base import Observation
from sandbox_server.actions.batch import Command
from sandbox_server.actions.batch_json import BatchOutcome
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import (
    ActionInterrupted,
    IsBox,
    MalformedRequest,
    SandboxLost,
    ServiceError,
    SessionBusy,
    SessionOver,
    SessionRestoring,
    StateUnavailable,
    UnknownSession,
)
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.sandbox.base import Runtime, Sandbox, ShellOutcome
from sandbox_server.scoring.journals import COMMAND, COMMAND_END, EXEC, NO_TEXTS, ROLLBACK
from sandbox_server.sessions.base import ActionAnswer
from sandbox_server.sessions.config import ActionConfig
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.redis_reconciler import RedisReconciler
from sandbox_server.sessions.regular_checkpoints import RegularCheckpoints
from sandbox_server.sessions.restoring import Restoring
from sandbox_server.sessions.running import ActionOutcome, ActionRun, Running
from sandbox_server.sessions.sleeping import Sleeping
from sandbox_server.state.turns import Turn

log = telemetry.logger(__name__)

_MOVES = 3  # lookups of a session's node; the session may move between two of them, but rarely does so repeatedly
_INTERRUPTED = "[The session was ended while this action ran. It was interrupted; all that it began was killed.]"
_REPEATABLE = NO_TEXTS - {EXEC, COMMAND}
_LEAST_COMMAND_S = 1.0  # minimum run time of an action, however long it waited for its turn
_INSTANCE_TRUSTED_S = 30.0  # live sessions see an import after this delay; a lookup for each action would cost 1 ms
_SECONDS = {stage: telemetry.ACTION_SECONDS.labels(stage) for stage in ("wait", "parse", "run", "journal")}


@dataclass(frozen=True, slots=True)
class _Asked:
    """One requested action."""

    content: str
    key: str
    """Idempotency key."""
    arrived: float
    clock: float
    """`arrived` on the monotonic clock."""
    tool: str = ""
    """One of NO_TEXTS; "" if `content` is a policy's text."""


class Acting:
    """Runs actions, one at a time per session; acknowledges each only after it is in the journal."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        running: Running,
        restoring: Restoring,
        sleeping: Sleeping,
        regular: RegularCheckpoints,
        reconciler: RedisReconciler,
        config: ActionConfig,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._running = running
        self._restoring = restoring
        self._sleeping = sleeping
        self._regular = regular
        self._reconciler = reconciler
        self._config = config
        self._now: dict[str, asyncio.Task[object]] = {}
        """sid -> the task that runs the session's action. `interrupt` removes a task when it cancels it."""
        self._journal_s: MutableMapping[Sandbox, float] = WeakKeyDictionary()
        """Seconds to write each sandbox's last action to the journal, counted in the next action's record."""

    def interrupt(self, sid: str) -> None:
        """End the session's running action, if any, now: its processes are killed, and it is journaled."""
        if running := self._now.pop(sid, None):
            running.cancel()

    async def act(self, sid: str, content: str, idempotency_key: str) -> ActionAnswer:
        """Run a policy's text in the session `sid` and return its observation.

        Raises:
            UnknownSession, SessionOver, SessionBusy, SessionRestoring, MalformedRequest: the action did not run.
            SandboxLost: the container is gone; the caller ends the session. Other InfrastructureErrors: the action
            may or may not have run, and was not acknowledged.
        """
        return await self._act(sid, _Asked(content, idempotency_key, clock.now(), time.monotonic()))

    async def exec(self, sid: str, commands: Sequence[Command], idempotency_key: str) -> ActionAnswer:
        """As `act`, for a batch; the answer's content is its `batch_json.observation_of`.

        Raises:
            MalformedRequest: the batch breaks a bound; the session was not used.
        """
        self._running.batches.check(commands, longest_s=self._config.command_timeout_s)
        content = batch_json.content_of(commands)
        return await self._act(sid, _Asked(content, idempotency_key, clock.now(), time.monotonic(), EXEC))

    async def work(self, sid: str, tool: str, content: str, idempotency_key: str) -> ActionAnswer:
        """As `act`, for content that is not a policy's text; the answer's content is the reply with the `notice`."""
        return await self._act(sid, _Asked(content, idempotency_key, clock.now(), time.monotonic(), tool))

    async def sandbox(self, sid: str) -> Sandbox:
        """The session's sandbox, for reading without a turn. If its node has died, restores the session here first.

        Raises:
            As `act`. OwnedElsewhere.
        """
        began = time.monotonic()
        for _ in range(_MOVES):
            record = await self._data.session(sid)
            if record is None or record.state != SessionState.LIVE:
                raise refusal(record)
            if record.node == self._config.node and not record.asleep:
                return await self._runtime.attach(record.container_id)
            if record.asleep and record.node == self._config.node:
                await self._awake(sid)
                continue
            await self._made_anew(record, began)
        raise StateUnavailable(f"session {sid} moved between nodes {_MOVES} times; send the request again")

    async def _act(self, sid: str, asked: _Asked) -> ActionAnswer:
        for _ in range(_MOVES):
            answer = await self._turn(sid, asked)
            if isinstance(answer, ActionAnswer):
                return answer
            if answer.node == self._config.node:
                await self._reconcile(sid)
            else:
                await self._made_anew(answer, asked.clock)
        raise StateUnavailable(f"session {sid} moved between nodes {_MOVES} times; send the action again")

    async def _awake(self, sid: str) -> None:
        """Wake the session, unless it is awake or over once this request holds its lock."""
        async with self._data.store.lock(sid, self._config.command_timeout_s + self._config.action_wait_s):
            record = await self._data.store.session(sid)
            if record is not None and record.asleep and record.state == SessionState.LIVE:
                await self._sleeping.wake(record, await self._data.instances.by_id(record.instance_id))

    async def _forgotten(self, sid: str) -> SessionRecord | None:
        """The record in SQL of a session that Redis lacks. Raises StateUnavailable: a reaper must put it back first."""
        record = await self._data.history.session(sid)
        if record is None or record.state != SessionState.LIVE:
            return record
        if record.node != self._config.node or not record.kind.is_rollout:
            raise StateUnavailable(f"Redis has lost session {sid}; the reaper puts it back, send it again")
        return record

    async def _reconcile(self, sid: str) -> None:
        async with self._data.store.lock(sid, self._config.command_timeout_s + self._config.action_wait_s):
            await self._reconciler.reconcile(sid)

    async def _made_anew(self, record: SessionRecord, began: float) -> None:
        """Take over another node's session. Raises SessionRestoring, and the errors of `Restoring.restore`."""
        left_s = self._config.command_timeout_s - (time.monotonic() - began)
        if not await self._restoring.restore(record, wait_s=max(0.0, left_s)):
            raise SessionRestoring(
                "The host of this session's sandbox died. The sandbox is being restored on another one, so this"
                " action did not run. Send it again."
            )

    async def _turn(self, sid: str, asked: _Asked) -> ActionAnswer | SessionRecord:
        """The answer; or the session's record, if another node has the session or Redis lacked its last changes."""
        wait_s = self._config.command_timeout_s + self._config.action_wait_s
        in_flight = InFlight(asked.content, asked.arrived, asked.arrived + wait_s, idempotency_key=asked.key)
        async with self._data.store.turn(sid, in_flight, idempotency_key=asked.key, wait_s=wait_s) as turn:
            if turn.stored is not None:
                return _answer(turn.stored, asked)
            record = turn.record or await self._forgotten(sid)
            if record is None or record.state != SessionState.LIVE:
                raise refusal(record)
            if not turn.may_run and record.kind.is_rollout:
                return record
            if self._reconciler.is_behind(record):
                await turn.withdraw(sid)
                return record
            # a session falls asleep only without an unsettled action: one found now arrived later, and never ran
            interrupted = None if record.asleep else turn.interrupted
            try:
                awake, instance, sandbox = await self._ready(record)
            except ServiceError as error:
                with suppress(StateUnavailable):
                    await turn.withdraw(sid)
                if isinstance(error, SandboxLost) and await self._reconciler.reconcile(sid, lost=record.container_id):
                    return record
                raise
            try:
                return await self._run(turn, awake, instance, sandbox, asked, interrupted)
            except ServiceError:
                if asked.tool == ROLLBACK:  # it changes the session only when it is acknowledged
                    with suppress(StateUnavailable):
                        await turn.withdraw(sid)
                raise

    async def _ready(self, record: SessionRecord) -> tuple[SessionRecord, TaskInstance, Sandbox]:
        """The session, awake, with its instance and container. Raises ServiceError: nothing ran."""
        if not record.kind.is_rollout:
            raise IsBox(f"session {record.sid} is a box: it takes commands by the protocol that made it, no actions")
        instance = await self._data.instances.by_id(record.instance_id, trusted_s=_INSTANCE_TRUSTED_S)
        if record.asleep:
            record = await self._sleeping.wake(record, instance)
        return record, instance, await self._runtime.attach(record.container_id)

    async def _run(
        self,
        turn: Turn,
        record: SessionRecord,
        instance: TaskInstance,
        sandbox: Sandbox,
        asked: _Asked,
        interrupted: InFlight | None,
    ) -> ActionAnswer:
        """`interrupted`: an action that was never acknowledged and may have run."""
        waited_s = time.monotonic() - asked.clock
        seconds = {"wait": waited_s}
        timeout_s = max(_LEAST_COMMAND_S, self._config.command_timeout_s - waited_s)
        began = clock.now()
        note = await self._settle(sandbox, interrupted)
        former = interrupted and (interrupted.idempotency_key, interrupted.content)
        retried = asked.key and former == (asked.key, asked.content)
        if note and retried and asked.tool not in _REPEATABLE:
            # a retry of the interrupted action itself: it may have run, so it does not run again
            ran = _cut_off(record, asked.tool, "")
        else:
            run = self._running.runner(asked.tool)
            given = ActionRun(sandbox, record, instance, asked.content, timeout_s, seconds)
            ran = await self._interruptible(sandbox, record, run(given), asked.tool)
        told = (f"{record.notice}\n" if record.notice else "") + note
        duration_s = clock.now() - began if ran.duration_s is None else ran.duration_s
        refused = ran.reply is not None and "error" in ran.reply and ran.observation.outcome != "interrupted"
        action = ActionRecord(
            sid=record.sid,
            seq=record.actions + 1,
            content=asked.content,
            observation=_observation(ran, told),
            tool=ran.tool,
            outcome=ran.observation.outcome,
            exit_code=ran.observation.exit_code,
            started_at=min(began, clock.now() - duration_s),
            duration_s=duration_s,
            idempotency_key="" if refused else asked.key,  # without a key, a retry of a refused request runs
        )
        written = time.monotonic()
        acknowledge = partial(
            turn.acknowledge,
            action,
            cwd=sandbox.shell.cwd or record.cwd,
            talk_turns=ran.talk_turns,
            timings_s=_summed(record.timings_s, {**seconds, "journal": self._journal_s.get(sandbox, 0.0)}),
            more=ran.changes,
        )
        try:
            await acknowledge()
        except StateUnavailable:
            if not await self._reconciler.reconcile(record.sid):
                raise
            await acknowledge()
        self._regular.acted(record.sid, sandbox, instance, action.duration_s)
        self._journal_s[sandbox] = seconds["journal"] = time.monotonic() - written
        for stage, taken_s in seconds.items():
            _SECONDS[stage].observe(taken_s)
        telemetry.ACTIONS.labels(ran.tool, ran.observation.outcome).inc()
        if traces.is_enabled():
            traces.span(record, _span(action, seconds, asked.arrived))
        return _answer(action, asked)

    async def _interruptible(
        self, sandbox: Sandbox, record: SessionRecord, action: Coroutine[None, None, ActionOutcome], tool: str
    ) -> ActionOutcome:
        """The result of the action, which may be cut off by `interrupt`."""
        # runs in the caller's task: a task of its own would cost 3 % of an action's CPU time
        task = self._now[record.sid] = cast(asyncio.Task[object], asyncio.current_task())
        cancelled_before = task.cancelling()
        try:
            return await action
        except asyncio.CancelledError:
            if record.sid in self._now or task.cancelling() > cancelled_before + 1:  # not by `interrupt` alone
                raise
        finally:
            if self._now.pop(record.sid, None) is None:
                task.uncancel()
        try:
            await sandbox.restart()  # the only step that surely kills all its processes, whatever the tool was
        except ServiceError as error:  # the end continues: its capture detects whether the sandbox still exists
            log.warning("sandbox not restarted after an interruption", sid=record.sid, code=error.code)
        log.info("action interrupted by the end of its session", sid=record.sid)
        return _cut_off(record, tool, _INTERRUPTED)

    async def _settle(self, sandbox: Sandbox, interrupted: InFlight | None) -> str:
        """Settle an action that was never acknowledged; returns the note about it for the policy."""
        if interrupted is None:
            return ""
        left_s = max(0.0, min(interrupted.deadline - clock.now(), self._config.command_timeout_s))
        result = await sandbox.shell.settle(wait_s=left_s)
        how = "had ended" if result is None else f"was {result.outcome.value}"
        killed = result is not None and result.outcome is ShellOutcome.RESTARTED
        fate = " All its processes were killed. A new shell was started; variables, functions and aliases are gone."
        return (
            f"[The service was interrupted during the previous action, which {how};"
            f" its output is lost and it may have taken effect only in part.{fate if killed else ''}]\n"
        )


def _observation(ran: ActionOutcome, told: str) -> str:
    """The observation as the journal keeps it: a text, or the JSON of a batch or reply. `told`: notices before it."""
    notice = told.rstrip("\n")
    if ran.batch is not None:
        return batch_json.observation_of(replace(ran.batch, notice=notice))
    if ran.reply is not None:
        return json.dumps({**ran.reply, "notice": notice})
    return told + ran.observation.text


def _answer(action: ActionRecord, asked: _Asked) -> ActionAnswer:
    """The answer to an action that is in the journal. Raises MalformedRequest: its key belongs to another action."""
    if action.content != asked.content and asked.tool != COMMAND_END:  # each waiting request writes its own
        raise MalformedRequest("This Idempotency-Key belongs to another action; use another one. Nothing was run.")
    return ActionAnswer(
        action.observation, seq=action.seq, tool=action.tool, outcome=action.outcome, exit_code=action.exit_code
    )


def _cut_off(record: SessionRecord, tool: str, text: str) -> ActionOutcome:
    """The result of an action that was interrupted at an unknown point."""
    observation = Observation("" if tool in NO_TEXTS else text, outcome="interrupted")
    if tool == EXEC:
        return ActionOutcome(observation, tool, record.talk_turns, BatchOutcome(None))
    if tool:
        error = {"code": ActionInterrupted.code, "detail": text or "the service was interrupted while this was done"}
        return ActionOutcome(observation, tool, record.talk_turns, reply={"error": error})
    return ActionOutcome(observation, "none", record.talk_turns)


def _summed(so_far: Mapping[str, float], seconds: Mapping[str, float]) -> Mapping[str, float]:
    """`so_far` plus an action's stages, rounded to microseconds, the clock's useful precision."""
    more = {f"action_{stage}": taken_s for stage, taken_s in seconds.items()}
    return {**so_far, **{name: round(so_far.get(name, 0.0) + taken_s, 6) for name, taken_s in more.items()}}


def _span(action: ActionRecord, seconds: Mapping[str, float], arrived: float) -> traces.Span:
    said: dict[str, traces.Value] = {
        "sandbox.seq": action.seq,
        "sandbox.tool": action.tool,
        "sandbox.outcome": action.outcome,
        **traces.in_seconds(seconds),
    }
    if action.exit_code is not None:
        said["sandbox.exit_code"] = action.exit_code
    return traces.Span("action", arrived, clock.now(), said)


def refusal(record: SessionRecord | None) -> ServiceError:
    """The error for a session in which no action can run: unknown (None), ended or lost."""
    if record is None:
        return UnknownSession("There is no such session: its start failed or it ended long ago.")
    if record.state == SessionState.LOST:
        return SandboxLost(record.cause)
    return SessionOver(f"The session has ended ({record.end_reason or record.state}); no action can run in it.")


def error_observation(error: ServiceError) -> ActionAnswer:
    """The text that a policy gets for an error, in place of an observation."""
    match error:
        case UnknownSession() | SessionOver() | SessionRestoring() | IsBox():
            text = error.detail
        case SessionBusy():
            text = (
                "The session is still busy with an earlier action, so this one did not run."
                " Wait for that action's end, then send this one again."
            )
        case SandboxLost():
            text = (
                f"The sandbox of this session was lost: {error.detail}. Nothing can run in it any more; start a new"
                " session."
            )
        case _:
            text = (
                f"The service could not complete this action ({error.code}): {error.detail}."
                " It may have taken effect; look before you repeat it."
            )
    return ActionAnswer(f"[{text}]", error.code)
