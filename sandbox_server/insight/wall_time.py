"""Divides the wall time of rollouts into stages. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_server.catalogue.insight.records import SessionTimings

STAGES = ("start_queue", "start", "model", "action_wait", "action", "postprocess", "grade_queue", "grade")
"""In the order of a rollout. model: the time between start, actions and end, which the trainer spends."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Mean times of a set of rollouts."""

    sessions: int
    seconds: Mapping[str, float]
    """Stage -> mean seconds, for all STAGES."""
    gap_s: float
    """Mean seconds that a sandbox waits for the model: between two actions, after the start, before the end."""

    @property
    def total_s(self) -> float:
        """Mean seconds of a rollout with its grading."""
        return sum(self.seconds.values())

    def share(self, stage: str) -> float:
        """The stage's share of the total, 0 to 1."""
        return self.seconds[stage] / self.total_s if self.total_s else 0.0


class _Sums:
    """Sums over sessions; `wall` returns the means."""

    def __init__(self) -> None:
        self.sessions = 0
        self._gaps = 0
        self._seconds = dict.fromkeys(STAGES, 0.0)

    def add(self, one: SessionTimings) -> None:
        """Count one ended session."""
        self.sessions += 1
        self._gaps += one.actions + 1
        for stage, spent_s in stages_of(one).items():
            self._seconds[stage] += spent_s

    @property
    def wall(self) -> Wall:
        """The means; all zero without a session."""
        means = {stage: spent_s / max(1, self.sessions) for stage, spent_s in self._seconds.items()}
        return Wall(self.sessions, means, self._seconds["model"] / self._gaps if self._gaps else 0.0)


def stages_of(one: SessionTimings) -> dict[str, float]:
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


class Walls:
    """Mean times of all added sessions, and of those of each run."""

    def __init__(self) -> None:
        self._all = _Sums()
        self._by_run: dict[str, _Sums] = {}

    def add(self, one: SessionTimings) -> None:
        """Count one ended session."""
        self._all.add(one)
        self._by_run.setdefault(one.run, _Sums()).add(one)

    @property
    def of_all(self) -> Wall:
        """Mean times of all added sessions."""
        return self._all.wall

    def by_run(self, *, most: int = 20) -> dict[str, Wall]:
        """Run -> its mean times, for the `most` runs with the most sessions."""
        largest = sorted(self._by_run, key=lambda run: (-self._by_run[run].sessions, run))[:most]
        return {run: self._by_run[run].wall for run in largest}
