"""The benchmarks' own arithmetic and texts: errors in them would go into the document."""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import report, subject
from bench.actions import paced
from bench.budgets import BUDGETS, kept
from bench.results import NAMES, Conditions, Figure, Point, Run, Side, percentile
from bench.rollouts import rollouts
from bench.samples import Sample, distinct
from bench.subject import Bench


def run_of(*figures: Figure) -> Run:
    return Run("whole", {"CPUs": "2 (a model)"}, list(figures))


def verdicts(run: Run) -> dict[str, bool | None]:
    return {one.budget.what: one.met for one in kept(run)}


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7.0], 99, 7.0), ([1.0, 3.0], 50, 2.0), ([float(n) for n in range(101)], 99, 99.0), ([0.0, 10.0], 5, 0.5)],
)
def test_percentiles_lie_between_the_values(values: Sequence[float], percent: int, expected: float) -> None:
    """One measurement is its own percentile; `statistics.quantiles` refuses it."""
    assert percentile(values, percent) == pytest.approx(expected)


def test_a_p99_is_shown_between_median_and_largest() -> None:
    """p5 and p95 would not enclose the p99."""
    side = Side.p99([float(n) for n in range(101)])
    assert (side.low, side.value, side.high, side.n) == (50, 99, 100, 101)


def test_an_entry_has_the_fields_that_others_read() -> None:
    """Fields: name, ours, peer, peer_name, unit, ratio, n; a missing peer is null, not left out."""
    assert Figure("a", "ms", Side(2.0, 10), Side(8.0, 5), "other").entry() == {
        "name": "a", "ours": 2.0, "peer": 8.0, "peer_name": "other", "unit": "ms", "ratio": 0.25, "n": 10,
    }  # fmt: skip
    alone = Figure("a", "ms", None).entry()
    assert (alone["ours"], alone["peer"], alone["ratio"], alone["n"]) == (None, None, None, 0)


def test_a_peer_of_zero_has_no_ratio() -> None:
    """Counts of errors are figures too, without division by zero."""
    assert Figure("errors", "", Side(0, 10), Side(0, 10), "other").ratio is None


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The plots are drawn from the file, in another process."""
    run = run_of(Figure("a", "ms", Side.median([1.0, 2.0]), None, "other", "why"))
    run.scale.append(Point(25, {"server_mb": 90.5}))
    run.conditions["a"] = Conditions(0.5, 3.0)
    run.missing["b"] = "not installed"
    run.write(tmp_path)
    assert Run.read(tmp_path) == run


def test_budgets_on_time_are_upper_limits_and_on_rate_lower_ones() -> None:
    """A budget read the wrong way round would praise a slow server."""
    slow = verdicts(run_of(Figure("action_true_ms", "ms", Side(1.4, 9)), Figure("actions_per_s", "1/s", Side(1099, 9))))
    fast = verdicts(run_of(Figure("action_true_ms", "ms", Side(1.3, 9)), Figure("actions_per_s", "1/s", Side(1100, 9))))
    for what in ("`true` in one session, p50", "actions per second, closed loop, 16 sessions"):
        assert (slow[what], fast[what]) == (False, True)


def test_a_budget_on_a_ratio_needs_the_peer() -> None:
    """Without the peer the result is unknown; `met` would be a guess."""
    what = "start, cold, ours / (docker run -d + docker exec)"
    assert verdicts(run_of(Figure("start_cold_ms", "ms", Side(100, 9))))[what] is None
    assert verdicts(run_of(Figure("start_cold_ms", "ms", Side(100, 9), Side(200, 9), "docker")))[what] is True
    assert verdicts(run_of(Figure("start_cold_ms", "ms", Side(101, 9), Side(200, 9), "docker")))[what] is False


def test_no_two_budgets_have_the_same_words() -> None:
    """The table would be ambiguous."""
    assert len({budget.what for budget in BUDGETS}) == len(BUDGETS)


def test_the_document_names_what_is_missing() -> None:
    """A failed peer must not silently drop out of the table."""
    run = run_of(Figure("action_true_ms", "ms", Side.median([1.0, 2.0, 3.0]), None, "SWE-ReX run_in_session"))
    run.missing["action: swerex"] = "its environment is not installed"
    text = report.markdown(run, [])
    assert "| `action_true_ms` | 2 (1.1 to 2.9) | - | ms |  | 3 | SWE-ReX run_in_session |" in text
    assert "| action: swerex | its environment is not installed |" in text
    assert "| `true` in one session, p50 | <= 1.3 | 2 | **not met**: it is CPU time of client," in text
    assert "not measured" in text


def test_the_document_shows_every_size_even_with_holes() -> None:
    """Idle CPU may be measured at some sizes only."""
    run = run_of()
    run.scale += [Point(1, {"server_mb": 90.0}), Point(200, {"server_mb": 120.4, "idle_pct": 1.25})]
    assert "| live sessions | 1 | 200 |" in report.scale(run)
    assert "| idle_pct |  | 1.25 |" in report.scale(run)


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.00032, "0.00032"), (2.849, "2.85"), (190.0, "190"), (1350.4, "1350")]
)  # fmt: skip
def test_numbers_have_three_digits_and_no_exponent(value: float, shown: str) -> None:
    """1.35e+03 in a table reads badly."""
    assert report._number(value) == shown


async def test_a_subject_that_does_not_end_costs_neither_the_others_nor_the_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One subject once took 22 minutes, and the run was stopped without a document."""
    monkeypatch.setattr(subject, "SUBJECT_S", 0.05)
    run = run_of()
    bench = Bench(run)
    ended = []

    async def endless(_: Bench) -> None:
        await asyncio.Event().wait()

    async def next_one(_: Bench) -> None:
        ended.append("next")

    await bench.subject("endless", endless)
    await bench.subject("next", next_one)
    assert ended == ["next"]
    assert "too long" in run.missing["endless"]
    assert run.conditions["endless"].took_s >= 0.05


def test_the_document_says_how_long_each_subject_took() -> None:
    """Otherwise nobody sees which of them makes the run long."""
    run = run_of()
    run.conditions |= {"a": Conditions(0.5, 3.0, 61.2), "b": Conditions(0.5, 3.0, 119.0)}
    text = report.markdown(run, [])
    assert "| a | 0.50 | 3 % | 61 s |" in text
    assert "All subjects took 3 minutes." in text


async def test_paced_actions_count_from_when_they_were_due() -> None:
    """A server that stalls for a second must show it in every action that waited, not in one."""
    turn = asyncio.Lock()

    async def one_at_a_time() -> None:
        async with turn:
            await asyncio.sleep(0.4)

    took, late, errors = await paced([one_at_a_time] * 4, 1)
    assert len(took) == 4
    assert errors == 0
    assert max(took) > 600  # the last was due after 0.75 s and could not begin before 1.2 s
    assert late == 0


def test_distinct_patches_apply_and_differ(tmp_path: Path) -> None:
    """Equal patches would share one grading, and the step would look too quick."""
    patches = [distinct("", number) for number in range(3)]
    assert len(set(patches)) == 3
    for patch in patches:
        subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    assert [(tmp_path / f"SAMPLE_{number}.txt").read_text() for number in range(3)] == ["0\n", "1\n", "2\n"]


def test_a_step_has_every_rollout_once_and_ten_actions_each() -> None:
    """The step's shape: instances x samples, ten actions, right and wrong fixes."""
    known = [replace(SAMPLE, name=name) for name in ("ledger", "tarif")]
    step = rollouts(known, instances=4, samples_each=3)
    assert [rollout.number for rollout in step] == list(range(12))
    assert len({rollout.instance_id for rollout in step}) == 4
    assert sum(rollout.solves for rollout in step) == 6
    assert all(len(list(rollout.steps())) == 10 for rollout in step)
    assert len({tuple(one.command for one in rollout.steps()) for rollout in step}) == 12


SAMPLE = Sample("ledger", {"instance_id": "samples__x-1", "image": "sandbox-samples/ledger:latest"}, "gold", "wrong")


def test_a_failed_subject_leaves_its_names_in_the_list() -> None:
    """latest.json is read by name; a failed subject must be null, not missing."""
    run = run_of(Figure("action_true_ms", "ms", Side(2.0, 9)))
    run.complete()
    assert [figure.name for figure in run.figures] == list(NAMES)
    assert run.figures[1].entry()["ours"] is None
