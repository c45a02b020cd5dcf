"""The suite must notice losses: its checks run on made-up losses."""

import time
from dataclasses import replace

from chaos.checks import in_journal, in_patch, wrong_rewards
from chaos.results import Outcome, table
from chaos.rollout import LINES, Acked, Rollout, numbers
from chaos.soak_report import Gauge, Soak, markdown

NOW = time.monotonic()


def rollout(**facts) -> Rollout:
    made = Rollout(1, "r1xab", "ledger", "gold", NOW, sid="7", phase="over", fixed=True, verdict="resolved", reward=1.0)
    return replace(made, **facts)


def entry(content: str, observation: str) -> dict:
    return {"content": content, "observation": observation}


def test_an_acknowledged_action_that_is_missing_altered_or_doubled() -> None:
    one = rollout(acked=[Acked("a", "did a", NOW), Acked("b", "did b", NOW + 5)])
    nowhere = (0.0, 0.0)
    assert in_journal(one, [entry("a", "did a"), entry("b", "did b")], nowhere) == []
    assert "not in the journal" in in_journal(one, [entry("a", "did a")], nowhere)[0]
    assert "another observation" in in_journal(one, [entry("a", "did a"), entry("b", "else")], nowhere)[0]
    assert "2 times" in in_journal(one, [entry("a", "did a"), entry("a", "did a"), entry("b", "did b")], nowhere)[0]
    assert in_journal(one, [entry("a", "did a")], (NOW + 4, NOW + 6)) == []
    assert in_journal(one, [entry("b", "did b")], (NOW + 4, NOW + 6)) != []


def test_a_line_that_is_missing_or_twice_in_the_patch() -> None:
    lines = [f"+r1xab {number}\n" for number in range(1, LINES + 1)]
    assert in_patch(rollout(), "".join(lines)) == []
    assert "missing [3]" in in_patch(rollout(), "".join(lines[:2] + lines[3:]))[0]
    assert "twice [2]" in in_patch(rollout(), "".join([*lines[:2], *lines[1:]]))[0]
    assert in_patch(rollout(), "".join(reversed(lines))) != []
    assert numbers("EXECUTION RESULT:\ncat x\r\nr1xab 1\r\nr2xcd 2\r\nr1xab 3\r\n", "r1xab") == [1, 3]


def test_an_unmasked_verdict_that_is_not_what_was_done() -> None:
    assert wrong_rewards([rollout(), rollout(verdict="infra", mask=True, reward=0.0)]) == []
    assert wrong_rewards([rollout(verdict="unresolved", reward=0.0)])
    assert wrong_rewards([rollout(reward=0.0)])
    assert wrong_rewards([rollout(ending="none", verdict="empty_patch", reward=0.0)]) == []
    assert wrong_rewards([rollout(ending="wrong")])
    assert wrong_rewards([rollout(gave_up="sandbox_lost: ...", terminal=True, verdict="unresolved", reward=0.0)])
    assert wrong_rewards([rollout(gave_up="start: refused", verdict="")]) == []


def test_a_fault_counts_as_survived_only_with_zeros_and_rollouts_after_it() -> None:
    fine = Outcome("x", "what", after=3)
    assert fine.ok
    for bad in (
        replace(fine, lost=["one"]),
        replace(fine, wrong=["one"]),
        replace(fine, leaked=["one"]),
        replace(fine, error="it had no effect"),
        replace(fine, after=0),
    ):
        assert not bad.ok
    assert [len(line) for line in table([fine]).splitlines()] == [len(table([fine]).splitlines()[0])] * 3


def soak(values: list[float], sql: list[int]) -> Soak:
    made = Soak(1, 2, 2, rollouts=80, gauges={"memory": Gauge(1.1, 8, values)}, sql_bytes=sql)
    made.finished = list(range(len(sql)))
    return made


def test_a_soak_sees_what_grows() -> None:
    flat, steady = [100.0] * 80, [index * 1000 for index in range(80)]
    assert soak(flat, steady).ok
    assert soak([60.0] * 20 + [100.0] * 60, steady).ok
    assert not soak([100.0 + index for index in range(80)], steady).ok
    assert not soak(flat, [index**3 * 100 for index in range(80)]).ok
    assert not replace(soak(flat, steady), failed=["refused"]).ok
    assert "**grew**" in markdown(soak([100.0 + index for index in range(80)], steady))
