"""Where the wall time of rollouts goes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.catalogue.insight.records import Timed

STAGES = ("start_queue", "start", "model", "action_wait", "action", "postprocess", "grade_queue", "grade")
"""In the order of a rollout. model: between the start, the actions and the end, so the trainer's own time."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Mean times of some rollouts."""

    sessions: int
    seconds: Mapping[str, float]
    """Stage -> mean seconds, for all STAGES."""
    gap_s: float
    """Mean time between two actions, the start and the end included: how long a sandbox waits for the model."""

    @property
    def total_s(self) -> float:
        """Mean seconds of a rollout with its grading."""
        return sum(self.seconds.values())

    def share(self, stage: str) -> float:
        """The stage's share of the total, 0 to 1."""
        return self.seconds[stage] / self.total_s if self.total_s else 0.0


def stages_of(one: Timed) -> dict[str, float]:
    """Stage -> seconds of one ended session."""
    spent = one.timings_s
    waited, patch_s = spent.get("action_wait", 0.0), spent.get("end_patch", 0.0)
    acted = sum(spent.get(f"action_{stage}", 0.0) for stage in ("parse", "run", "journal"))
    return {
        "start_queue": spent.get("start_queue", 0.0),
        "start": spent.get("start_prepare", 0.0) + spent.get("start_container", 0.0),
        "model": max(0.0, one.ended_at - one.created_at - waited - acted - patch_s),
        "action_wait": waited,
        "action": acted,
        "postprocess": patch_s,
        "grade_queue": one.queue_s,
        "grade": one.grade_s,
    }


def wall_of(sessions: Sequence[Timed]) -> Wall:
    """Mean times of the sessions; all zero if there are none."""
    spent = [stages_of(one) for one in sessions]
    count = max(1, len(spent))
    seconds = {stage: sum(one[stage] for one in spent) / count for stage in STAGES}
    gaps = sum(one.actions + 1 for one in sessions)
    return Wall(len(spent), seconds, seconds["model"] * count / gaps if gaps else 0.0)


def wall_by_run(sessions: Iterable[Timed], *, most: int = 20) -> dict[str, Wall]:
    """Run -> its mean times, for the `most` runs with the most sessions."""
    by_run: dict[str, list[Timed]] = {}
    for one in sessions:
        by_run.setdefault(one.run, []).append(one)
    largest = sorted(by_run, key=lambda run: (-len(by_run[run]), run))[:most]
    return {run: wall_of(by_run[run]) for run in largest}
