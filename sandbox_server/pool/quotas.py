"""Quotas of a run on this node: concurrent sessions, and starts per minute.

They count by account: the API key's name, or the run's label if the key has no name. So a client with a named key
gains nothing by inventing labels.
"""

import math
import time
from collections import deque

from sandbox_server.errors import OverQuota

_MINUTE_S = 60.0
_FULL_S = 10
"""Retry delay for a run that has all its sessions: sessions take minutes, so one of them may have ended by then."""
_MOST = 10_000
"""Maximum number of accounts whose starts are remembered, because clients choose the labels."""


class Quotas:
    """Counts the sessions and recent starts of each account; a bound of 0 means no bound."""

    def __init__(self, *, sessions: int, starts_per_min: int) -> None:
        self._sessions = sessions
        self._starts = starts_per_min
        self._held: dict[str, int] = {}
        self._begun: dict[str, deque[float]] = {}

    def begin(self, account: str) -> None:
        """Count a start, which holds a session from now on. Raises OverQuota."""
        held = self._held.get(account, 0)
        if self._sessions and held >= self._sessions:
            raise OverQuota(
                f"the run {account!r} has {held} sessions on this node, including those that are starting, and may have"
                f" {self._sessions} (SANDBOX_RUN_SESSIONS); end some, or wait",
                retry_after_s=_FULL_S,
            )
        if self._starts:
            self._pace(account, time.monotonic())
        self.hold(account)

    def hold(self, account: str) -> None:
        """Count a session without a check of the bounds: a previous server's, or one restored here."""
        self._held[account] = self._held.get(account, 0) + 1

    def release(self, account: str) -> None:
        """Count one session fewer."""
        left = self._held.get(account, 0) - 1
        if left > 0:
            self._held[account] = left
        else:
            self._held.pop(account, None)

    def _pace(self, account: str, now: float) -> None:
        begun = self._begun.get(account)
        if begun is None:
            if len(self._begun) >= _MOST:
                self._forget(now)
            begun = self._begun[account] = deque()
        while begun and now - begun[0] >= _MINUTE_S:
            begun.popleft()
        if len(begun) >= self._starts:
            wait_s = max(1, math.ceil(begun[0] + _MINUTE_S - now))
            raise OverQuota(
                f"the run {account!r} began {len(begun)} sessions on this node within a minute, which is what a run"
                f" may (SANDBOX_RUN_STARTS_PER_MIN); ask again in {wait_s} s",
                retry_after_s=wait_s,
            )
        begun.append(now)

    def _forget(self, now: float) -> None:
        for account in [name for name, begun in self._begun.items() if not begun or now - begun[-1] >= _MINUTE_S]:
            del self._begun[account]
