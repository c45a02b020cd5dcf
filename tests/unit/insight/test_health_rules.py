"""The one word, on staged data: each rule by itself, and which of two comes first."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_server.catalogue.history import kind_of
from sandbox_server.catalogue.insight.records import (
    Group,
    GroupKind,
    PassRate,
    SessionTimings,
    UnsoundInstance,
    VerdictCount,
)
from sandbox_server.insight.health_rules import RULES, Evidence, Word, findings, jumps, word_of
from sandbox_server.insight.wall_time import STAGES, Wall, Walls
from sandbox_server.state.nodes import NodeRecord, Status

SEEING = Path(__file__).parents[3] / "docs" / "seeing.md"
NODE = NodeRecord("n1", "http://n1", "b", slots=8, used=8)
GOOD = (VerdictCount("resolved", False, 20, 20.0), VerdictCount("unresolved", False, 20, 0.0))
WELL = Evidence(now=GOOD, before=GOOD, nodes=(NODE,), ends={"postprocess": 40})


def count(verdict: str, number: int, *, mask: bool = False) -> VerdictCount:
    return VerdictCount(verdict, mask, number, 0.0)


def wall(**seconds: float) -> Wall:
    return Wall(10, {stage: 0.0 for stage in STAGES} | seconds, gap_s=seconds.get("model", 0.0))


def group(least: float | None, most: float | None, graded: int = 8, masked: int = 0) -> Group:
    return Group("r", "i", graded, masked, least, most, least, 0.0, 0.0)


STAGED = {
    "no_node": replace(WELL, nodes=(replace(NODE, status=Status.DRAINING),)),
    "node_fault": replace(WELL, nodes=(replace(NODE, faults={"disk": "95 % used"}),)),
    "masked_infra": replace(WELL, now=(*GOOD, count("infra", 3, mask=True)), causes={"image_unavailable": 3}),
    "lost": replace(WELL, ends={"postprocess": 20, "lost": 2}),
    "starts_wait": replace(WELL, nodes=(replace(NODE, waiting=5),)),
    "gradings_wait": replace(WELL, wall=wall(model=50.0, grade_queue=30.0)),
    "grader_broken": replace(WELL, now=(*GOOD, count("infra", 3, mask=True)), causes={"grader_broken": 2, "defect": 1}),
    "no_results": replace(WELL, now=(*GOOD, count("no_results", 30)), before=(*GOOD, count("no_results", 3))),
    "unsound": replace(WELL, unsound=(UnsoundInstance("i", "unresolved", "unresolved", 4),)),
    "unpatched": replace(WELL, now=(*GOOD, count("no_results", 3, mask=True)), causes={"no_results": 3}),
    "fell": replace(WELL, fell=(PassRate("i", 0, 8, 8, 8),), rated=9),
    "nothing_done": replace(WELL, now=(count("empty_patch", 3), count("patch_failed", 1), count("resolved", 1))),
    "tampered": replace(WELL, now=(*GOOD, count("tampered", 3))),
    "collapse": replace(WELL, now=(count("resolved", 4), count("unresolved", 36))),
    "flat_groups": replace(WELL, groups=[group(0.0, 0.0)] * 4 + [group(0.0, 1.0), group(None, None, 8, 8)]),
    "slow_model": replace(WELL, wall=wall(model=100.0)),
}


def test_all_is_well() -> None:
    """Somebody would be woken for nothing."""
    assert findings(WELL) == [] and word_of([]) is Word.FINE


def test_little_is_no_evidence() -> None:
    """The first rollout of the day would name a culprit."""
    few = replace(WELL, now=(count("empty_patch", 1), count("infra", 1, mask=True)), before=(), causes={"lost": 1})
    assert findings(replace(few, groups=[group(0.0, 0.0, graded=2)], ends={"idle": 1})) == []


@pytest.mark.parametrize("rule", RULES)
def test_each_cause_is_named(rule: str) -> None:
    """A rule that never holds is none."""
    found = findings(STAGED[rule])
    assert [one.rule for one in found] == [rule] and found[0].why.endswith((".", "used"))


def test_a_finding_leads_to_what_it_counted() -> None:
    """The list behind it would be empty, or another run's."""
    failed = (count("patch_failed", 3), count("resolved", 1))
    (found,) = findings(replace(WELL, now=failed, run="a/b&c"))
    assert found.see == "sessions?verdict=patch_failed&run=a%2Fb%26c"
    (found,) = findings(replace(STAGED["unpatched"], now=(*GOOD, count("timeout", 3, mask=True))))
    assert found.see == "sessions?verdict=timeout&masked=true"
    (found,) = findings(replace(STAGED["no_results"], now=(*GOOD, count("timeout", 30))))
    assert found.see == "sessions?verdict=timeout"
    (found,) = findings(replace(STAGED["flat_groups"], groups=[group(1.0, 1.0)] * 2))
    assert found.see == "groups?kind=all_1"
    (found,) = findings(replace(STAGED["unsound"], run="r"))
    assert found.see == "instances/i"


def test_the_layer_below_comes_first() -> None:
    """A full disk would be blamed on the policy, whose groups are all 0 because of it."""
    both = replace(STAGED["nothing_done"], groups=STAGED["flat_groups"].groups, nodes=STAGED["node_fault"].nodes)
    assert [one.rule for one in findings(both)] == ["node_fault", "nothing_done", "flat_groups"]
    assert word_of(findings(both)) is Word.INFRASTRUCTURE
    most = replace(STAGED["fell"], rated=1, fell=STAGED["fell"].fell * 3)
    assert findings(most) == []  # most instances fell: that is no matter of the data


def test_every_rule_is_in_the_document() -> None:
    """Nobody could tell what a word rests on."""
    table = SEEING.read_text().split("| rule | word |")[1].split("\n\n")[0]
    words = {rule: findings(STAGED[rule])[0].word.value for rule in RULES}
    assert re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE) == list(words.items())


async def test_jumps() -> None:
    """A curriculum that gets easier, or two coin tosses, would be a jump."""
    fell, rose = PassRate("a", 0, 8, 8, 8), PassRate("b", 8, 8, 0, 8)
    others = [PassRate("c", 4, 8, 6, 8), PassRate("d", 0, 2, 2, 2), PassRate("e", 0, 8, 0, 0)]
    assert await jumps([*others, fell, rose]) == ([fell], [rose], 3)


def test_kinds_of_groups() -> None:
    kinds = [group(*x).kind for x in ((0.0, 0.0), (1.0, 1.0), (0.5, 0.5), (0.0, 1.0), (1.0, 1.0, 2, 1), (None, None))]
    assert kinds == [GroupKind.ALL_0, GroupKind.ALL_1, GroupKind.FLAT, GroupKind.MIXED, *kinds[4:]]
    assert kinds[4:] == [GroupKind.SINGLE, GroupKind.MASKED]


def test_where_the_time_went() -> None:
    """The model's own time would be taken for the sandbox's."""
    spent = {"start_queue": 2.0, "start_container": 1.0, "action_wait": 0.5, "action_run": 4.0, "end_patch": 1.5}
    one = SessionTimings("r", 100.0, 130.0, "postprocess", 3, spent, queue_s=5.0, grade_s=9.0)
    walls = Walls()
    walls.add(one)
    found = walls.of_all
    assert found.seconds == {
        "start_queue": 2.0,
        "start": 1.0,
        "model": 24.0,
        "action_wait": 0.5,
        "action": 4.0,
        "postprocess": 1.5,
        "grade_queue": 5.0,
        "grade": 9.0,
    }
    assert found.total_s == 47.0 and found.gap_s == 6.0
    walls.add(replace(one, run="s"))
    assert list(walls.by_run()) == ["r", "s"] and walls.of_all.sessions == 2 and walls.of_all.seconds == found.seconds
    assert Walls().of_all.total_s == 0.0


def test_kinds_of_causes() -> None:
    """A cause that quotes a log would be a kind of its own."""
    assert kind_of("infra", "image_unavailable: x:y is not there") == "image_unavailable"
    assert kind_of("infra", "a defect of the service: KeyError: 'x'") == "defect"
    assert kind_of("infra", "the sandbox was lost before its patch was taken: oom") == "lost"
    assert kind_of("infra", "anything else") == "other" and kind_of("timeout", "x: y") == "timeout"
