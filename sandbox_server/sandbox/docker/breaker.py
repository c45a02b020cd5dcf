"""One engine's circuit breaker: after several calls in a row without an answer nothing new is begun there.

Any answer counts as one, also an error: only silence opens it (no connection, or none within the call's bound). Open,
it lets nothing through and takes nothing back by itself: a probe that is answered lets new work try again, and then
the first silence opens it again, the first answer closes it for good.
"""

from collections.abc import Callable


class Breaker:
    """Counts silences; `changed(text)` hears what is wrong when it opens, "" when it lets work through again."""

    def __init__(self, failures: int, changed: Callable[[str], None]) -> None:
        """`failures` in a row open it."""
        self._failures = failures
        self._changed = changed
        self._count = 0
        self.fault = ""
        """What is wrong, while it is open."""

    def answered(self) -> None:
        """A call was answered."""
        self._count = 0
        self._set("")

    def silent(self, detail: str) -> None:
        """A call was not answered."""
        self._count += 1
        if self._count >= self._failures:
            self._set(f"{detail}; nothing new is begun until it answers again")

    def probed(self) -> None:
        """The probe was answered: the next call decides."""
        if self.fault:
            self._count = self._failures - 1
            self._set("")

    def _set(self, fault: str) -> None:
        if bool(fault) != bool(self.fault):
            self._changed(fault)
        self.fault = fault
