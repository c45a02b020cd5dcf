"""Score code search sessions from their journal, without patch or container; store metrics of all rollouts."""

import asyncio
from collections.abc import Mapping, Sequence

from sandbox_server import telemetry
from sandbox_server.actions.base import Dialect
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.localization.truth import RewardItem
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.errors import GraderBroken, ServiceError, Ungradable
from sandbox_server.grading.localization.base import RewardContext
from sandbox_server.grading.localization.composition import Composition, compose
from sandbox_server.grading.localization.verdict import verdict_of
from sandbox_server.records import SessionRecord
from sandbox_server.scoring.answering import in_format
from sandbox_server.scoring.journals import Journals, effective_actions
from sandbox_server.scoring.rollout import answer_of, events_of, metrics_of, numbers
from sandbox_server.verdicts import GradedSession, Verdict, VerdictName

log = telemetry.logger(__name__)

_AT_ONCE = 1 << 17  # characters of a journal; a longer one is read in a thread


class Localizing:
    """Scores sessions and stores their rollout metrics."""

    def __init__(
        self,
        journals: Journals,
        rollouts: Rollouts,
        dialects: Mapping[str, Dialect],
        *,
        dialect: str,
        default: Composition,
    ) -> None:
        """`dialect` and `default` apply if an instance names none."""
        self.journals = journals
        self.rollouts = rollouts
        self._dialects = dialects
        self._dialect = dialect
        self._default = default

    def composition(self, instance: TaskInstance | None) -> Composition:
        """Composition for `instance`, unless its session names another; None: the default.

        Raises:
            Ungradable: the instance's rewards are invalid.

        """
        if instance is None or instance.localization is None or not instance.localization.rewards:
            return self._default
        return _composed(instance.localization.rewards, instance.instance_id)

    async def as_asked(self, sid: str, instance: TaskInstance) -> TaskInstance:
        """`instance` with the answer's format that the trainer set for the session. Raises CatalogueUnavailable."""
        return in_format(instance, (await self.rollouts.reported(sid)).format)

    async def verdict(self, session: SessionRecord, instance: TaskInstance) -> tuple[Verdict, str]:
        """The verdict with its score, and the name of its composition.

        Errors give `infra`, masked.
        """
        try:
            return await self._scored(session, instance)
        except ServiceError as error:
            telemetry.INFRA_ERRORS.labels(error.code).inc()
            cause = f"{error.code}: {error.detail}"
        except Exception as error:  # our own bugs must give a masked verdict, not a lost reward
            log.exception("scoring failed", instance_id=instance.instance_id, sid=session.sid)
            telemetry.INFRA_ERRORS.labels("defect").inc()
            cause = f"a defect of the service: {type(error).__name__}: {error}"
        return Verdict(VerdictName.INFRA, mask=True, cause=cause, f2p_total=1, patch_is_none=True), ""

    async def metrics(self, session: SessionRecord, instance: TaskInstance | None) -> dict[str, object]:
        """Metrics of the session's rollout so far. Raises StateUnavailable, CatalogueUnavailable."""
        actions = effective_actions(await self.journals.of(session), session.undone)
        reported = await self.rollouts.reported(session.sid)
        dialect = self._dialect_of(instance)
        if sum(len(action.content) for action in actions) <= _AT_ONCE:
            return metrics_of(session, actions, dialect, reported.tokens)
        return await asyncio.to_thread(metrics_of, session, actions, dialect, reported.tokens)

    async def keep(self, session: SessionRecord, instance: TaskInstance, graded: GradedSession) -> None:
        """Store the rollout's metrics, and its rewards if not masked, for averages."""
        try:
            found = numbers(await self.metrics(session, instance)) | _rewards(graded)
            for name, value in found.items():
                telemetry.ROLLOUT.labels(name).observe(value)
            await self.rollouts.save_metrics(session.sid, found, run=session.run, at=graded.graded_at)
        except ServiceError as error:  # missing metrics must not cost the verdict
            log.warning("metrics not kept", sid=session.sid, code=error.code, error=error.detail)

    async def _scored(self, session: SessionRecord, instance: TaskInstance) -> tuple[Verdict, str]:
        task = instance.localization
        if task is None:
            raise GraderBroken(f"{instance.instance_id} has no localization to be scored by")
        actions = effective_actions(await self.journals.complete(session), session.undone)
        reported = await self.rollouts.reported(session.sid)
        composition = self.composition(instance)
        if reported.rewards:
            composition = _composed(reported.rewards, f"session {session.sid}")
        dialect = self._dialect_of(instance)
        end = max((action.started_at + action.duration_s for action in actions), default=session.created_at)

        def scored() -> Verdict:
            context = RewardContext(
                answer=answer_of(actions, in_format(instance, reported.format), dialect),
                truth=task.truth,
                events=events_of(actions, dialect, reported.tokens, wall_clock_s=end - session.created_at),
                instance_id=instance.instance_id,
            )
            return verdict_of(composition.score(context), task.truth)

        return await asyncio.to_thread(scored), composition.name  # a policy's messages may be long

    def _dialect_of(self, instance: TaskInstance | None) -> Dialect:
        named = None if instance is None else instance.dialect
        return self._dialects[named or self._dialect]


def _composed(items: Sequence[RewardItem], name: str) -> Composition:
    try:
        return compose(items, name=name)
    except ValueError as error:
        raise Ungradable(f"its rewards cannot be used: {error}; give it others") from None


def _rewards(graded: GradedSession) -> dict[str, float]:
    if graded.verdict.mask:
        return {"masked": 1.0}
    found = {"masked": 0.0, "reward": graded.reward}
    if graded.verdict.score is not None:
        found |= {f"reward/{item.fn}": item.value for item in graded.verdict.score.items}
        found["answered"] = float(graded.verdict.score.answer is not None)
    return found
