"""The actions that this process has acknowledged, in its own memory, because Redis may come back without the last ones.

A replica that takes over, a backup, or a host that lost its last second has fewer actions than were acknowledged. This
process knows their number for each session, and has those that SQL has not got yet.
"""

from collections.abc import Iterable, Sequence

from sandbox_server.records import ActionRecord

_KEPT_BYTES = 16 << 20
"""Characters of the kept actions, which SQL lacks. SQL lags by less than a second. While it is down, the oldest actions
are dropped beyond this bound: a copy of Redis's data that lacks them would have to be old."""


class AcknowledgedActions:
    """The actions that one process acknowledged."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._unwritten: dict[tuple[str, int], ActionRecord] = {}
        self._bytes = 0

    def add(self, action: ActionRecord) -> None:
        """Redis has just acknowledged the action."""
        self._last[action.sid] = action.seq
        self._unwritten[action.sid, action.seq] = action
        self._bytes += _size(action)
        while self._bytes > _KEPT_BYTES:
            self._drop(next(iter(self._unwritten)))

    def written(self, actions: Iterable[ActionRecord]) -> None:
        """SQL has these actions."""
        for action in actions:
            self._drop((action.sid, action.seq))

    def last(self, sid: str) -> int:
        """Number of the session's last action that this process acknowledged; 0: none, or the session is over."""
        return self._last.get(sid, 0)

    def unwritten(self, sid: str) -> Sequence[ActionRecord]:
        """The session's actions that SQL may lack, oldest first."""
        return [action for (of, _), action in self._unwritten.items() if of == sid]

    def settle(self, sid: str, last: int) -> None:
        """Accept that Redis has `last` actions of the session, and that later ones are lost."""
        if sid in self._last:
            self._last[sid] = last

    def forget(self, sid: str) -> None:
        """The session is over here, or another node's."""
        self._last.pop(sid, None)

    def _drop(self, key: tuple[str, int]) -> None:
        if action := self._unwritten.pop(key, None):
            self._bytes -= _size(action)


def _size(action: ActionRecord) -> int:
    return len(action.content) + len(action.observation)
