"""The reward of a verdict, as it is stored."""

from dataclasses import replace

import pytest

from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading.registry import load_rewards
from sandbox_server.scoring.receipts import Receipts
from sandbox_server.verdicts import Confirmation, ConfirmState, Score, Verdict, VerdictName

from .test_history import PATCH, SESSION

TASK = TaskInstance(
    instance_id="a__b-1",
    repo="a/b",
    base_commit="b" * 40,
    sandbox=SandboxSpec(images=("unused",)),
    grader=ScriptGrader(command="true"),
)
RESOLVED = Verdict(VerdictName.RESOLVED, False, "all pass", f2p_count=1, f2p_total=1)
SCORED = replace(RESOLVED, name=VerdictName.UNRESOLVED, f2p_count=0, score=Score(0.7, (), None))


def _confirmed(verdict: Verdict, *, pays: bool) -> Verdict:
    return replace(verdict, confirm=Confirmation(ConfirmState.NONE, pays=pays))


@pytest.mark.parametrize(
    ("verdict", "reward", "by"),
    [
        (RESOLVED, 1.0, "f2p_if_p2p_kept"),
        (_confirmed(RESOLVED, pays=True), 1.0, "f2p_if_p2p_kept"),
        (SCORED, 0.7, "script"),
        (replace(RESOLVED, name=VerdictName.UNRESOLVED, f2p_count=0), 0.0, "f2p_if_p2p_kept"),
        (replace(RESOLVED, mask=True), 0.0, "f2p_if_p2p_kept"),
        (replace(SCORED, mask=True), 0.0, "script"),
        (_confirmed(RESOLVED, pays=False), 0.0, "f2p_if_p2p_kept"),
        (_confirmed(SCORED, pays=False), 0.0, "script"),
    ],
)
async def test_what_pays(database: Database, verdict: Verdict, reward: float, by: str) -> None:
    """A fault of ours, or a patch that nothing confirmed, would be paid."""
    history = History(database)
    receipts = Receipts(history, load_rewards(), reward="f2p_if_p2p_kept", node="n1")
    graded = await receipts.store(SESSION, TASK, PATCH, verdict)
    stored, receipt = await history.graded(SESSION.sid), await history.receipt(graded.receipt)
    assert stored == graded and (graded.reward, graded.reward_name, graded.verdict.mask) == (reward, by, verdict.mask)
    assert (receipt["reward"], receipt["mask"], receipt["name"]) == (reward, verdict.mask, verdict.name.value)
    evidence = ("patch_sha256", "patch_bytes", "base_commit", "image_head", "node")
    assert [receipt[name] for name in evidence] == [PATCH.sha256, 7, TASK.base_commit, PATCH.base_commit, "n1"]


async def test_a_reward_that_is_no_number_is_not_stored(database: Database) -> None:
    """A trainer would get NaN, which spreads through its whole batch."""
    receipts = Receipts(History(database), load_rewards(), reward="resolved", node="n1")
    with pytest.raises(ValueError, match="gave nan"):
        await receipts.store(SESSION, TASK, PATCH, replace(SCORED, score=Score(float("nan"), (), None)))
    assert await History(database).graded(SESSION.sid) is None


async def test_a_masked_verdict_is_nobody_elses(database: Database) -> None:
    """Equal patches share a verdict; they would share the fault that masked it, too."""
    history = History(database)
    receipts = Receipts(history, load_rewards(), reward="resolved", node="n1")
    await receipts.store(SESSION, TASK, PATCH, RESOLVED, key="k")
    masked = replace(RESOLVED, name=VerdictName.INFRA, mask=True)
    await receipts.store(replace(SESSION, sid="8"), TASK, PATCH, masked, key="k")
    assert await history.verdict_by_key("k") == RESOLVED
