"""Circuit breaker of one engine: after several calls in a row without an answer, no new work starts there.

Any answer counts, also an error; only silence opens the breaker (no connection, or no answer within the call's time
limit). It does not close by itself: after a successful probe new work is tried again; then the next silence opens it
at once and the next answer closes it.
"""

from collections.abc import Callable


class Breaker:
    """Counts unanswered calls; reports the fault to `changed` when it opens, and "" when work may start again."""

    def __init__(self, failures: int, changed: Callable[[str], None]) -> None:
        """`failures` unanswered calls in a row open it."""
        self._failures = failures
        self._changed = changed
        self._count = 0
        self.fault = ""
        """What is wrong, while it is open; else ""."""

    def record_answer(self) -> None:
        """A call was answered."""
        self._count = 0
        self._set("")

    def record_silence(self, detail: str) -> None:
        """A call got no answer."""
        self._count += 1
        if self._count >= self._failures:
            self._set(f"{detail}; no new work starts until it answers again")

    def record_probe(self) -> None:
        """The probe was answered; the next call decides."""
        if self.fault:
            self._count = self._failures - 1
            self._set("")

    def _set(self, fault: str) -> None:
        if bool(fault) != bool(self.fault):
            self._changed(fault)
        self.fault = fault
