"""What trainers say of sessions, and means over rollouts, on each database."""

import pytest

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.localization.truth import RewardItem
from sandbox_server.catalogue.rollouts import Rollouts, Rollup, SessionReport
from sandbox_server.verdicts import Answer, GradedSession, RewardValue, Score, TurnTokens, Verdict, VerdictName

ITEMS = (RewardItem(fn="turn_efficiency", weight=0.5, args={"max_turns": 4}),)
TOKENS = (TurnTokens(100, 10), TurnTokens(2**52, 0))


async def test_reports_are_kept_apart(database: Database) -> None:
    """A report of tokens would take the session's rewards away."""
    rollouts = Rollouts(database)
    assert await rollouts.reported("7") == SessionReport()
    await rollouts.report("7")
    await rollouts.report("7", rewards=ITEMS)
    await rollouts.report("7", tokens=TOKENS[:1])
    assert await rollouts.reported("7") == SessionReport(ITEMS, TOKENS[:1])
    await rollouts.report("7", tokens=TOKENS)
    await rollouts.report("7", written="files")
    assert await rollouts.reported("7") == SessionReport(ITEMS, TOKENS, "files")
    assert await rollouts.reported("8") == SessionReport()
    await rollouts.inherit("8", "7")
    assert await rollouts.reported("8") == SessionReport(ITEMS, (), "files")
    await rollouts.inherit("9", "6")
    assert await rollouts.reported("9") == SessionReport()


async def test_means(database: Database) -> None:
    rollouts = Rollouts(database)
    await rollouts.save_metrics("1", {"num_turns": 2, "reward": 0.5}, run="a", at=100.0)
    await rollouts.save_metrics("2", {"num_turns": 4}, run="a", at=200.0)
    await rollouts.save_metrics("3", {"num_turns": 9}, run="b", at=300.0)
    await rollouts.save_metrics("4", {}, run="b", at=300.0)
    assert await rollouts.rollup(since=0.0, run="a") == [
        Rollup("num_turns", 2, 3.0, 2.0, 4.0),
        Rollup("reward", 1, 0.5, 0.5, 0.5),
    ]
    assert await rollouts.rollup(since=150.0) == [Rollup("num_turns", 2, 6.5, 4.0, 9.0)]
    await rollouts.save_metrics("1", {"num_turns": 6}, run="a", at=400.0)  # graded again
    assert await rollouts.rollup(since=150.0, run="a") == [Rollup("num_turns", 2, 5.0, 4.0, 6.0)]
    assert await rollouts.rollup(since=999.0) == []


@pytest.mark.parametrize("answer", [None, Answer("lines", ("a\ud800.py",), (), (), {"a\ud800.py": ((1, 2), (3, 4))})])
async def test_a_score_is_given_again_as_it_was(database: Database, answer: Answer | None) -> None:
    history = History(database)
    items = (RewardValue("file_localization_f1_reward", 1.0, 2.0), RewardValue("f", 0.5, 1.0, {"file_f1": 0.5}))
    score = Score(2.5, items, answer, (1.25, 2.5), ("no_modules",))
    verdict = Verdict(VerdictName.RESOLVED, mask=False, cause=".", score=score)
    graded = GradedSession("7", "a__b-1", verdict, 2.5, "mine", "r-1", 5.0)
    assert await history.save_graded(graded, {"id": "r-1"}, "") == graded
    assert await history.graded("7") == graded
