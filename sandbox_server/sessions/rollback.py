"""Rollbacks: a session returns to an earlier action, in a new container. The journal marks and keeps undone actions."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sandbox_server import telemetry
from sandbox_server.actions.base import Observation
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.checkpoints.store import CheckpointDamaged
from sandbox_server.errors import ActionInterrupted, MalformedRequest, NotForkable, ServiceError
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.records import SessionRecord
from sandbox_server.sandbox.base import Runtime
from sandbox_server.scoring.journals import ROLLBACK, Journals, undone_ranges
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.checkpointing import Checkpointing
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.running import ActionOutcome, ActionRun, Running
from sandbox_server.starts.log import SessionLog
from sandbox_server.starts.starts import GRACE_S

log = telemetry.logger(__name__)


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """The result of a rollback."""

    to: int
    """Number of the action after which the session now is."""
    seq: int
    """The rollback's own number in the journal."""
    notice: str
    """What differs from the state at that time; "" if nothing does."""


class Rollback:
    """Rolls sessions back."""

    def __init__(
        self,
        runtime: Runtime,
        data: SessionData,
        workspaces: Workspaces,
        acting: Acting,
        running: Running,
        checkpointing: Checkpointing,
        log: SessionLog,
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._workspaces = workspaces
        self._acting = acting
        self._checkpointing = checkpointing
        self._log = log
        self._journals = Journals(data.store, data.history)
        running.serve(ROLLBACK, self._run)

    async def rollback(self, sid: str, to: int, *, idempotency_key: str = "") -> RollbackResult:
        """Return the session to the state after action `to`; 0: before the first one.

        The next action has the number after the rollback's own. Requests with the same `idempotency_key` roll back
        once.

        Raises:
            UnknownSession, SessionOver, SessionBusy, SessionRestoring, MalformedRequest (`to`): nothing happened.
            NotForkable: the state cannot be restored; SandboxDiskFull, SandboxExhausted: there is no room for it now.
            The session is unchanged. SandboxLost.
            Other InfrastructureErrors: read the session before you repeat the request.
        """
        before = await self._data.session(sid)
        answer = await self._acting.work(sid, ROLLBACK, json.dumps({"to": to}), idempotency_key)
        reply = json.loads(answer.content)
        if error := reply.get("error"):
            for kind in (MalformedRequest, NotForkable):
                if error["code"] == kind.code:
                    raise kind(error["detail"])
            raise ActionInterrupted(f"{error['detail']}; look at the session before you repeat it")
        if now := await self._data.store.session(sid):
            self._log.add(now)  # the record in SQL is from the start of the session, with another container
        if before is not None:  # otherwise the reaper finds it
            await self._remove(before.container_id, but=sid)
        return RollbackResult(to, answer.seq, str(reply["differs"]))

    async def _run(self, action: ActionRun) -> ActionOutcome:
        to = int(json.loads(action.content)["to"])
        try:
            return await self._anew(action.record, action.instance, to)
        except (MalformedRequest, NotForkable) as error:
            reply = {"error": {"code": error.code, "detail": error.detail}}
            return ActionOutcome(Observation("", outcome="refused"), ROLLBACK, action.record.talk_turns, reply=reply)

    async def _anew(self, record: SessionRecord, instance: TaskInstance, to: int) -> ActionOutcome:
        """Restore the state after action `to` in a new container; the journal entry makes it the container of the
        session.
        """
        if to > record.actions or any(first <= to <= last for first, last in undone_ranges(record.undone)):
            raise MalformedRequest(f"to: action {to} of session {record.sid} does not exist, or was undone itself")
        actions = await self._journals.complete(record)
        origin = await self._checkpointing.origin(record, instance, actions[:to])
        spec = await self._workspaces.spec(instance)
        ends = datetime.fromtimestamp(record.deadline + GRACE_S, UTC)
        made = await self._runtime.create(replace(spec, sid=record.sid, deadline=ends))
        scratch = f"{record.sid}.rollback"  # the session's own undo history stays until the state is restored
        try:
            then = await self._checkpointing.restore(replace(record, sid=scratch), made, origin)
            undo = await self._data.store.history(scratch, made.container_id).export()
            await self._data.store.history(record.sid, made.container_id).put(undo)
        except CheckpointDamaged as error:
            await asyncio.shield(self._remove(made.container_id))
            raise NotForkable(f"a checkpoint was damaged and is removed; send the request again ({error})") from error
        except BaseException:
            await asyncio.shield(self._remove(made.container_id))
            raise
        finally:
            with suppress(ServiceError):
                await self._data.store.history(scratch, made.container_id).clear()
        notice = then.notice(f"This session went back to action {to}")
        undone = f"{record.undone} {to + 1}-{record.actions + 1}".strip()
        changes = {
            "container_id": made.container_id,
            "undone": undone,
            "cwd": then.cwd or record.cwd,
            "notice": notice,
            "differences": then.untold,
            "egress_refused": record.refused_with(await self._runtime.refused(record.container_id)),
        }
        reply = {"to": to, "differs": notice}
        log.info("rolled back", sid=record.sid, to=to, seq=record.actions + 1)
        return ActionOutcome(Observation("", outcome="done"), ROLLBACK, then.talk_turns, reply=reply, changes=changes)

    async def _remove(self, container_id: str, *, but: str = "") -> None:
        """Remove a container unless it is the present one of the session `but`; the reaper removes what stays."""
        with suppress(ServiceError):
            current = await self._data.store.session(but) if but else None
            if current is None or current.container_id != container_id:
                await self._runtime.remove(container_id)
