"""One grading of an ended session: from its patch, or from its actions in code search, to a stored verdict."""

import asyncio
from dataclasses import replace

from sandbox_server import clock, telemetry, traces
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import InfrastructureError
from sandbox_server.grading import tripwires
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.lifecycle import SessionState
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.scoring.localizing import Localizing
from sandbox_server.scoring.receipts import Receipts
from sandbox_server.scoring.steps import over_steps
from sandbox_server.verdicts import GradedSession, VerdictName

log = telemetry.logger(__name__)

_SHORT = 8 << 10
"""Characters of actions and patch up to which signs are counted on the event loop (some 2 ms), not on a thread."""
_ROUNDED_S = 0.01  # measured stages may exceed the whole by this much


class SessionGrading:
    """Grades one session at a time for each call; `Rewards` makes callers share a session's grading."""

    def __init__(self, queue: GradingQueue, history: History, localizing: Localizing, receipts: Receipts) -> None:
        self._queue = queue
        self._history = history
        self.localizing = localizing
        self._receipts = receipts

    async def grade(
        self, session: SessionRecord, instance: TaskInstance, patch: PatchRecord | None = None
    ) -> GradedSession:
        """Grade the session and store its verdict; `patch` saves reading it from SQL.

        Raises:
            CatalogueUnavailable: nothing is stored; grade it again.
        """
        began = clock.now()
        graded = await self._graded(session, instance, patch)
        if traces.is_enabled():
            traces.span(session, _span(graded, began), asked=False)
        return graded

    async def _graded(self, session: SessionRecord, instance: TaskInstance, patch: PatchRecord | None) -> GradedSession:
        patch = patch or await self._history.patch(session.sid)
        request = GradeRequest(
            instance=instance,
            patch=None if patch is None else patch.diff,
            sid=session.sid,
            patch_cause="" if patch is None else patch.cause,
            run=session.run,
            owner=session.owner,
        )
        if patch is None:
            cause = f"the sandbox was lost before its patch was taken: {session.cause or session.end_reason}"
            if session.state == SessionState.ENDED:  # a session becomes ENDED only with a patch in SQL
                cause = "its patch is gone from SQL; was the database replaced by an older copy?"
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
            return await self._receipts.store(session, instance, patch, verdict)
        if instance.localizes:
            verdict, composition = await self.localizing.verdict(session, instance)
            return await self._receipts.store(session, instance, patch, verdict, composition=composition)
        seen = asyncio.create_task(self._tripwires(session, request), name=f"tripwires-{session.sid}")
        try:
            key = await self._queue.key(request)
            try:
                verdict = await self._queue.verdict(request, key)
                # a verdict that includes the rewards of earlier steps must not be shared with other sessions
                key_of_verdict = "" if instance.step else await self._queue.key(request, verdict)
                runner_files = len(verdict.runner_files)
                refused = session.egress_refused
                found = tripwires.with_counts(await seen, runner_files=runner_files, egress_refused=refused)
                for sign in found:
                    telemetry.TRIPWIRES.labels(sign).inc()
                verdict = replace(verdict, tripwires=found)
                verdict = await over_steps(self._history, session, instance, verdict)
                return await self._receipts.store(session, instance, patch, verdict, key=key_of_verdict)
            finally:
                await self._queue.written(key)
        finally:
            seen.cancel()

    async def _tripwires(self, session: SessionRecord, request: GradeRequest) -> dict[str, int]:
        """Count the tripwires of the session's actions and patch, which are known before the tests run."""
        try:
            actions = [action.content for action in await self.localizing.journals.of(session)]
        except InfrastructureError as error:  # missing tripwires must not cost the reward
            log.warning(
                "tripwires: the actions could not be read", sid=session.sid, code=error.code, error=error.detail
            )
            actions = []
        if sum(map(len, actions)) + len(request.patch or b"") < _SHORT:
            return tripwires.count(actions, request.patch)
        return await asyncio.to_thread(tripwires.count, actions, request.patch)


def _span(graded: GradedSession, began: float) -> traces.Span:
    """The span of a stored grading, without stages if the verdict was found for another session with the same patch."""
    verdict = graded.verdict
    stages = {name: taken_s for name, taken_s in verdict.timings_s.items() if name != "total"}
    shared = sum(stages.values()) > graded.graded_at - began + _ROUNDED_S
    said: dict[str, traces.Value] = {
        "sandbox.verdict": verdict.name.value,
        "sandbox.masked": verdict.mask,
        "sandbox.reward": graded.reward,
        "sandbox.shared": shared,
    }
    now = clock.now()
    rows = () if shared else traces.consecutive_spans(stages, graded.graded_at)
    stored = traces.Span("store", graded.graded_at, now)
    error = verdict.cause if verdict.name is VerdictName.INFRA else ""
    return traces.Span("grading", began, now, said, error, (*rows, stored))
