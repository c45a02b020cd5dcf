"""Operations on sessions (start, act, end, reward): the order of their steps and their answers on failure."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sandbox_server import telemetry
from sandbox_server.actions.batch import Command
from sandbox_server.actions.batch_json import outcome_of
from sandbox_server.catalogue.insight.listing import Listing, fits
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem
from sandbox_server.errors import (
    ActionInterrupted,
    IsBox,
    MalformedRequest,
    NoPatch,
    RequestError,
    SandboxLost,
    ServiceError,
    SessionBusy,
    SessionOver,
    SessionRestoring,
    SessionStillLive,
    UnknownInstance,
    UnknownSession,
)
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import ActionRecord, PatchRecord, SessionRecord
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.rewards import RewardAnswer, Rewards
from sandbox_server.sessions import acting
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.base import ActionAnswer, BatchAnswer, SessionView
from sandbox_server.sessions.data import SessionData
from sandbox_server.sessions.ends import Ends
from sandbox_server.sessions.task_starts import TaskStarts
from sandbox_server.verdicts import TurnTokens

log = telemetry.logger(__name__)

_OWNERS_KEPT = 100_000


class SessionService:
    """Implements `sessions.base.Sessions`."""

    def __init__(
        self,
        data: SessionData,
        starts: TaskStarts,
        acting: Acting,
        ends: Ends,
        rewards: Rewards,
        localizing: Localizing,
        listing: Listing,
    ) -> None:
        self._data = data
        self._starts = starts
        self._acting = acting
        self._ends = ends
        self._rewards = rewards
        self._localizing = localizing
        self._listing = listing
        self._owner_of: dict[str, str] = {}

    async def start(
        self, instance: int | str, *, run: str = "", owner: str = "", idempotency_key: str = "", after: str = ""
    ) -> str:
        """See `sessions.base.Sessions.start`."""
        return await self._starts.start(instance, run=run, owner=owner, idempotency_key=idempotency_key, after=after)

    async def give_back(self, sid: str, *, idempotency_key: str = "") -> bool:
        """See `sessions.base.Sessions.give_back`."""
        return await self._starts.give_back(sid, idempotency_key=idempotency_key)

    async def start_group(
        self, instance: int | str, n: int, *, run: str = "", owner: str = "", idempotency_key: str = ""
    ) -> "tuple[list[str], list[ServiceError]]":
        """See `sessions.base.Sessions.start_group`."""
        return await self._starts.start_group(instance, n, run=run, owner=owner, idempotency_key=idempotency_key)

    async def act(self, sid: str, content: str, *, idempotency_key: str = "") -> ActionAnswer:
        """See `sessions.base.Sessions.act`."""
        try:
            answer = await self._acting.act(sid, content, idempotency_key)
            if answer.tool == "finish" and (record := await self._data.store.session(sid)):  # it will end soon
                self._rewards.expect(await self._data.instances.by_id(record.instance_id), sid)
            return answer
        except MalformedRequest:
            raise
        except SandboxLost as error:
            await self._ends.lose(sid, error.detail)
            return acting.error_observation(error)
        except (UnknownSession, SessionOver, SessionBusy, SessionRestoring) as error:
            return acting.error_observation(error)
        except ServiceError as error:
            telemetry.INFRA_ERRORS.labels(error.code).inc()
            log.error("action failed", sid=sid, code=error.code, error=error.detail)
            return acting.error_observation(error)

    async def exec(self, sid: str, commands: Sequence[Command], *, idempotency_key: str = "") -> BatchAnswer:
        """See `sessions.base.Sessions.exec`."""
        try:
            answer = await self._acting.exec(sid, commands, idempotency_key)
        except SandboxLost as error:
            await self._ends.lose(sid, error.detail)
            raise
        outcome = outcome_of(answer.content)
        if outcome is None:
            raise MalformedRequest("This Idempotency-Key belongs to an action that is not a batch; use another key.")
        if outcome.results is None:
            raise ActionInterrupted(
                f"{outcome.notice or 'The service was interrupted while this batch ran.'} Send it with another"
                " Idempotency-Key to run it again."
            )
        return BatchAnswer(outcome.results, answer.seq, outcome.notice)

    async def postprocess(self, sid: str) -> SessionRecord | None:
        """See `sessions.base.Sessions.postprocess`."""
        return await self._ends.end(sid, "postprocess")

    async def close(self, sid: str) -> SessionRecord | None:
        """See `sessions.base.Sessions.close`."""
        return await self._ends.close(sid)

    async def reward(self, sid: str) -> RewardAnswer:
        """See `sessions.base.Sessions.reward`."""
        return await self._ends.reward(sid)

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
        with suppress(UnknownInstance):  # the instance was removed from the catalogue
            instance = await self._data.instances.by_id(record.instance_id)
        return await self._localizing.metrics(record, instance)

    async def patch(self, sid: str) -> PatchRecord:
        """See `sessions.base.Sessions.patch`."""
        record = await self._known(sid)
        if not record.kind.is_rollout:
            raise IsBox(f"session {sid} is a box: no patch is taken of it")
        patch = await self._data.history.patch(sid)
        if patch is None:
            raise _without_patch(record)
        return patch

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> list[ActionRecord]:
        """See `sessions.base.Sessions.actions`."""
        journals, record = self._localizing.journals, await self._known(sid)
        if limit is not None:
            return await journals.part(record, after=after, limit=limit)
        return [action for action in await journals.of(record) if action.seq > after]

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> "list[SessionWithVerdict]":
        """See `sessions.base.Sessions.list`."""
        # SQL has a session's start and end; its state in between is in Redis
        kept = SessionState.LIVE.value if wanted.state == SessionState.ENDING else wanted.state
        found = await self._listing.sessions(replace(wanted, state=kept), limit=limit)
        seen = {one.record.sid: one for one in found}
        # if the page is full, older sessions belong to the next page
        oldest = min((one.record.created_at for one in found), default=0.0) if len(found) == limit else 0.0
        for record in await self._present(found, wanted):
            if record.sid in seen or record.created_at >= oldest:
                seen[record.sid] = SessionWithVerdict(record, None)
        now = sorted(seen.values(), key=lambda one: (one.record.created_at, one.record.sid), reverse=True)
        return [one for one in now if fits(one.record, wanted)][:limit]

    async def _present(self, found: "Sequence[SessionWithVerdict]", wanted: SessionFilter) -> "Sequence[SessionRecord]":
        """Sessions that are not over, from Redis: all, or for a narrow filter only those in `found`."""
        if wanted.instance is None and wanted.before is None and wanted.verdict is None and wanted.masked is None:
            return await self._data.store.live()
        going = [one.record.sid for one in found if one.record.ended_at == 0]
        records = await asyncio.gather(*(self._data.store.session(sid) for sid in going))
        return [record for record in records if record is not None]

    async def _known(self, sid: str) -> SessionRecord:
        record = await self._data.session(sid)
        if record is None:
            raise UnknownSession.of(sid)
        return record


def _without_patch(record: SessionRecord) -> RequestError:
    """The error for a session of which SQL has no patch: why there is none."""
    match record.state:
        case SessionState.LIVE:
            return SessionStillLive(f"session {record.sid} is live: POST /postprocess first")
        case SessionState.ENDING:
            return SessionStillLive(f"session {record.sid} is ending: its patch is being taken; ask again")
        case SessionState.LOST:
            cause = record.cause or record.end_reason
            return NoPatch(f"session {record.sid} was lost before its patch was taken: {cause}; start a new session")
    return NoPatch(
        f"session {record.sid} has ended, but its patch is gone from SQL; was the database replaced by an older copy?"
        " Start a new session"
    )
