"""Quotas of what a run uses on all nodes within a window: CPU seconds of its sandboxes, seconds of its gradings.

They count by account, as `pool.quotas`.
"""

import math
import uuid
from dataclasses import dataclass

from sandbox_server.errors import OverQuota
from sandbox_server.state.usage import Kind, Reading, Usage
from sandbox_server.tasks import TaskSet

_CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class SpendingBounds:
    """The limits of one account within the window; 0: no limit."""

    cpu_s: float
    grading_s: float
    window_s: float

    def of(self, kind: Kind) -> float:
        """The bound of this kind."""
        return self.cpu_s if kind is Kind.CPU else self.grading_s


_WORDS = {
    Kind.CPU: ("CPU seconds in sessions and boxes", "SANDBOX_RUN_CPU_S"),
    Kind.GRADING: ("seconds of gradings", "SANDBOX_RUN_GRADE_S"),
}


class Spending:
    """Refuses new work of accounts that have used up their quota. Work under way continues."""

    def __init__(self, usage: Usage, bounds: SpendingBounds) -> None:
        self.usage = usage
        self._bounds = bounds
        self._kinds = [kind for kind in Kind if bounds.of(kind)]
        self._writing = TaskSet("seconds of gradings")

    async def check(self, account: str) -> None:
        """Return if the account may begin something. Without bounds, Redis is not asked.

        Raises:
            OverQuota: the account has used up a quota. StateUnavailable.
        """
        if not self._kinds:
            return
        spent = await self.usage.spent(account, self._kinds)
        for kind in self._kinds:
            bound_s = self._bounds.of(kind)
            if wait_s := math.ceil(spent[kind].wait_s(bound_s)):
                what, setting = _WORDS[kind]
                raise OverQuota(
                    f"the run {account!r} has used {spent[kind].total_s:.0f} {what} within {self._bounds.window_s:g} s"
                    f" on all nodes, and may use {bound_s:g} ({setting}); ask again in {wait_s} s",
                    retry_after_s=wait_s,
                )

    def add_grading(self, account: str, seconds: float) -> None:
        """Count the seconds for which a grading of the account held a slot."""
        if self._bounds.grading_s:
            reading = Reading(uuid.uuid4().hex, account, Kind.GRADING, seconds)
            self._writing.start(self.usage.count([reading]))

    async def close(self) -> None:
        """Wait a few seconds for what is being written."""
        await self._writing.settle(_CLOSE_S)
