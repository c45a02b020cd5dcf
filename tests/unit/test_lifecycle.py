"""The moves of a session, written out: the store's own tests take them from the table that they would test."""

from sandbox_server.lifecycle import OVER, SessionState, sources_of

LIVE, ENDING, ENDED, LOST = SessionState.LIVE, SessionState.ENDING, SessionState.ENDED, SessionState.LOST


def test_the_moves() -> None:
    """An ended session would run actions again, be captured a second time, or lose its patch by being declared lost."""
    assert {state: sources_of(state) for state in SessionState} == {
        LIVE: frozenset(),
        ENDING: {LIVE, ENDING},
        ENDED: {ENDING},
        LOST: {LIVE, ENDING},
    }
    assert {ENDED, LOST} == OVER
