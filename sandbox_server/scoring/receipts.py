"""What a grading leaves in SQL: the verdict, its reward, and the receipt that explains both."""

import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Reward
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.verdicts import GradedSession, Verdict

log = telemetry.logger(__name__)

_LOG_TAIL_IN_RECEIPT = 20_000  # characters of the test log


class Receipts:
    """Computes rewards of verdicts with one reward function, and stores both."""

    def __init__(self, history: History, rewards: Mapping[str, Reward], *, reward: str, node: str) -> None:
        """Raises ValueError if no reward function is called `reward`."""
        if reward not in rewards:
            raise ValueError(f"there is no reward {reward!r}; SANDBOX_REWARD is one of {', '.join(sorted(rewards))}")
        self._history = history
        self._reward = rewards[reward]
        self._reward_name = reward
        self._node = node

    async def store(
        self,
        session: SessionRecord,
        instance: TaskInstance,
        patch: PatchRecord | None,
        verdict: Verdict,
        *,
        key: str = "",
        composition: str = "",
    ) -> GradedSession:
        """Store the verdict and its reward.

        `key`: the key under which other sessions with the same patch find the verdict; "": the verdict is not shared.
        `composition`: name of the composition of rewards that gave `verdict.score`; "" if there was none.

        Raises:
            CatalogueUnavailable: nothing is stored. ValueError: the reward is not a finite number.
        """
        given = instance.grader.kind if instance.grader and verdict.score else ""  # by the tests themselves
        reward, name = 0.0, composition or given or self._reward_name
        if verdict.pays:
            reward = self._reward(instance, verdict) if verdict.score is None else verdict.score.total
        if not math.isfinite(reward):
            raise ValueError(f"the reward {name} gave {reward} for {verdict.name}")
        graded = GradedSession(
            sid=session.sid,
            instance_id=session.instance_id,
            verdict=verdict,
            reward=float(reward),
            reward_name=name,
            receipt=uuid.uuid4().hex,
            graded_at=clock.now(),
        )
        telemetry.VERDICTS.labels(verdict.name.value, str(verdict.mask).lower()).inc()
        log.info(
            "graded",
            sid=session.sid,
            instance_id=session.instance_id,
            run=session.run,
            verdict=verdict.name.value,
            mask=verdict.mask,
            reward=reward,
            seconds=round(verdict.timings_s.get("total", 0.0), 2),
        )
        receipt = self._receipt(graded, session, patch, instance.base_commit)
        with telemetry.GRADE_SECONDS.labels("store").time():
            return await self._history.save_graded(graded, receipt, key)

    def _receipt(
        self, graded: GradedSession, session: SessionRecord, patch: PatchRecord | None, row_base_commit: str
    ) -> dict[str, object]:
        verdict = asdict(graded.verdict)
        verdict["name"] = graded.verdict.name.value
        verdict["log_tail"] = graded.verdict.log_tail[-_LOG_TAIL_IN_RECEIPT:]
        return {
            "receipt": graded.receipt,
            "sid": graded.sid,
            "instance_id": graded.instance_id,
            "run": session.run,
            "parent": session.parent,
            "forked_at": session.forked_at,
            "node": self._node,
            "reward": graded.reward,
            "reward_name": graded.reward_name,
            "graded_at": graded.graded_at,
            "base_commit": row_base_commit,
            "image_head": "" if patch is None else patch.base_commit,
            "patch_cause": "" if patch is None else patch.cause,
            "patch_sha256": "" if patch is None else patch.sha256,
            "session_timings_s": dict(session.timings_s),
            "patch_bytes": 0 if patch is None or patch.diff is None else len(patch.diff),
            **verdict,
        }
