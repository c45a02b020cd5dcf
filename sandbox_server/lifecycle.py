"""A session's states and its legal moves. Pure.

    live ──> ending ──> ended
      └────────┴──────> lost

live: actions run. ending: the patch is being captured, the container goes. ended: the patch is in SQL, the
container is gone, a verdict may follow or be there. lost: the container was gone before the patch was captured, or
no engine could read it; verdict `infra`, masked.
"""

from enum import StrEnum


class SessionState(StrEnum):
    """Where a session stands."""

    LIVE = "live"
    ENDING = "ending"
    ENDED = "ended"
    LOST = "lost"


OVER = frozenset({SessionState.ENDED, SessionState.LOST})
"""The terminal states."""

_MOVES: dict[SessionState, frozenset[SessionState]] = {
    SessionState.LIVE: frozenset({SessionState.ENDING, SessionState.LOST}),
    # ending -> ending: the server died in the middle, the next one captures again
    SessionState.ENDING: frozenset({SessionState.ENDING, SessionState.ENDED, SessionState.LOST}),
    SessionState.ENDED: frozenset(),
    SessionState.LOST: frozenset(),
}


def sources_of(new: SessionState) -> frozenset[SessionState]:
    """The states from which `new` may be reached (for a compare-and-set in the store)."""
    return frozenset(old for old, targets in _MOVES.items() if new in targets)
