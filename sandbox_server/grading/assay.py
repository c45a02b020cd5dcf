"""An assay measures what an instance's tests are worth, by many runs of gold and of the unpatched tree. Pure.

It is a part of the instance's certificate. A test that passes in some runs of the same code and fails in others is
flaky. Flaky tests are quarantined: no verdict counts them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from typing import Any, Literal

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.altering import names_tests
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.verdicts import totals
from sandbox_server.verdicts import VerdictName

PART = "assay"
COMMAND = "(command)"
"""Stands for the single test of a grader that judges by an exit code."""

_GRADED = (VerdictName.RESOLVED, VerdictName.UNRESOLVED)
_Z = 1.959964  # 95 % of a normal distribution lies within this many standard deviations of its mean


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of the tests over gold or over the unpatched tree."""

    gold: bool
    """False: the unpatched tree."""
    load: bool
    """Whether the host was kept busy."""
    verdict: str
    cause: str
    seconds: float
    odd: tuple[str, ...] = ()
    """Tests with an unexpected outcome. Gold: those that failed; unpatched tree: F2P that passed, P2P that failed."""

    @property
    def graded(self) -> bool:
        """Whether the run gave a result for each test."""
        return self.verdict in _GRADED


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a test had the unexpected outcome."""

    test: str
    state: Literal["gold", "empty"]
    odd: int
    runs: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval (Wilson score)."""
        return wilson(self.odd, self.runs)


@dataclass(frozen=True, slots=True)
class MutationResult:
    """Mutants of gold, and those among them that the tests did not notice."""

    made: int = 0
    survived: tuple[str, ...] = ()
    """`path:line before -> after`."""
    why: str = ""
    """Why no mutant was made."""


@dataclass(frozen=True, slots=True)
class Assay:
    """Everything measured."""

    trials: tuple[Trial, ...] = ()
    stubs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stub body -> F2P tests that pass with it."""
    faults: MutationResult | None = None
    """None: not tried yet."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Assay":
        """Read what `to_json` wrote."""
        trials = tuple(Trial(**{**trial, "odd": tuple(trial["odd"])}) for trial in document["trials"])
        faults = document["faults"]
        return cls(
            trials,
            {body: tuple(tests) for body, tests in document["stubs"].items()},
            None if faults is None else MutationResult(**{**faults, "survived": tuple(faults["survived"])}),
        )

    def runs(self, *, gold: bool, load: bool) -> int:
        """Number of trials of this kind."""
        return sum(trial.gold is gold and trial.load is load for trial in self.trials)


@dataclass(frozen=True, slots=True)
class Finding:
    """The conclusions from an assay, for people, receipts and gradings."""

    sound: bool = True
    why: str = ""
    """Why the instance is not sound."""
    flaky: tuple[Rate, ...] = ()
    free: tuple[str, ...] = ()
    """F2P tests that pass on the unpatched tree."""
    stubs: tuple[str, ...] = ()
    """F2P tests that pass with a stub or on the unpatched tree."""
    ungradable: str = ""
    """Why no verdict can be given; "" if one can."""
    said: str = ""
    """One-line summary; "" if no assay was made."""

    @property
    def quarantined(self) -> tuple[str, ...]:
        """The flaky tests; no verdict counts them."""
        return tuple(sorted({rate.test for rate in self.flaky}))


def wilson(odd: int, runs: int) -> tuple[float, float]:
    """95 % confidence interval of a rate, from `odd` cases in `runs` trials."""
    if runs == 0:
        return 0.0, 1.0
    p, z2 = odd / runs, _Z * _Z
    middle = (p + z2 / (2 * runs)) / (1 + z2 / runs)
    half = _Z * sqrt(p * (1 - p) / runs + z2 / (4 * runs * runs)) / (1 + z2 / runs)
    return max(0.0, middle - half), min(1.0, middle + half)


def names_of(instance: TaskInstance) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(F2P, P2P) names as the assay uses them; `COMMAND` for a grader that judges by an exit code."""
    return (instance.fail_to_pass, instance.pass_to_pass) if names_tests(instance) else ((COMMAND,), ())


def trial_of(instance: TaskInstance, run: TestRun, *, gold: bool, load: bool, seconds: float) -> Trial:
    """The trial record of one run."""
    f2p, p2p = names_of(instance)
    passed = run.passed
    if f2p == (COMMAND,):
        passed = frozenset(f2p) if run.name is VerdictName.RESOLVED else frozenset()
    odd: list[str] = []
    if run.name in _GRADED:
        odd += [test for test in f2p if (test in passed) is not gold]
        odd += [test for test in p2p if test not in passed]
    return Trial(gold, load, run.name.value, run.cause, round(seconds, 3), tuple(odd))


def finding(instance: TaskInstance, assay: Assay) -> Finding:
    """Derive the finding from an assay."""
    f2p, p2p = names_of(instance)
    gold = [trial for trial in assay.trials if trial.gold and trial.graded]
    empty = [trial for trial in assay.trials if not trial.gold and trial.graded]
    failed, odd = _counts(gold), _counts(empty)
    flaky = [Rate(test, "gold", failed[test], len(gold)) for test in (*f2p, *p2p) if 0 < failed[test] < len(gold)]
    flaky += [Rate(test, "empty", odd[test], len(empty)) for test in (*f2p, *p2p) if 0 < odd[test] < len(empty)]
    quarantined = {rate.test for rate in flaky}
    free = tuple(test for test in f2p if empty and odd[test] == len(empty))
    stubbed = {test for tests in assay.stubs.values() for test in tests}
    broken = [test for test in (*f2p, *p2p) if gold and failed[test] == len(gold)]
    left = [test for test in f2p if test not in quarantined]
    why = _why(assay, broken, [test for test in left if test not in free])
    ungradable = ""
    if not left:
        ungradable = (
            f"every F2P test flakes ({len(f2p)} of {len(f2p)}, by its certificate): repair the image or the row"
        )
    found = Finding(
        sound=not why,
        why=why,
        flaky=tuple(flaky),
        free=free,
        stubs=tuple(test for test in f2p if test in free or test in stubbed),
        ungradable=ungradable,
    )
    return replace(found, said=_said(found, assay, len(gold)))


def without(instance: TaskInstance, run: TestRun, quarantined: Iterable[str]) -> tuple[TestRun, int, int]:
    """(run, f2p_total, p2p_total) without the quarantined tests; the verdict's name is recomputed."""
    f2p_total, p2p_total = totals(instance)
    f2p, p2p = names_of(instance)
    out = set(quarantined)
    out_f2p, out_p2p = out.intersection(f2p), out.intersection(p2p)
    if not out_f2p and not out_p2p:
        return run, f2p_total, p2p_total
    f2p_total, p2p_total = len(set(f2p) - out), len(set(p2p) - out)
    if run.name not in _GRADED:
        return run, f2p_total, p2p_total
    f2p_failed = tuple(test for test in run.f2p_failed if test not in out)
    p2p_failed = tuple(test for test in run.p2p_failed if test not in out)
    f2p_count, p2p_count = f2p_total - len(set(f2p_failed)), p2p_total - len(set(p2p_failed))
    resolved = f2p_total > 0 and not f2p_failed and not p2p_failed
    cause = f"{f2p_count} of {f2p_total} F2P and {p2p_count} of {p2p_total} P2P tests pass"
    if resolved is not (run.name is VerdictName.RESOLVED):
        cause += f" (with all of them: {run.name.value})"
    number = len(out_f2p) + len(out_p2p)
    return (
        replace(
            run,
            name=VerdictName.RESOLVED if resolved else VerdictName.UNRESOLVED,
            cause=f"{cause}; {number} that {'flakes is' if number == 1 else 'flake are'} not counted",
            f2p_count=f2p_count,
            p2p_count=p2p_count,
            f2p_failed=f2p_failed,
            p2p_failed=p2p_failed,
        ),
        f2p_total,
        p2p_total,
    )


def _counts(trials: Sequence[Trial]) -> Counter[str]:
    return Counter(test for trial in trials for test in trial.odd)


def _why(assay: Assay, broken: Sequence[str], telling: Sequence[str]) -> str:
    """Why the instance cannot be trusted; "" if it can."""
    untold = [trial for trial in assay.trials if not trial.graded]
    if all(trial.verdict == VerdictName.NO_RESULTS for trial in assay.trials if not trial.gold):
        # That the unpatched tree never gives results is sound: in a compiled language, tests of names that only gold
        # adds do not build without it.
        untold = [trial for trial in untold if trial.gold]
    if untold:
        kinds = Counter(("gold" if trial.gold else "empty", trial.verdict) for trial in untold)
        said = ", ".join(f"{count} x {patch} {verdict}" for (patch, verdict), count in kinds.most_common())
        return f"{len(untold)} of {len(assay.trials)} runs gave no results ({said}): {untold[0].cause}"
    if broken:
        return f"gold never passes {len(broken)} of its tests, e.g. {broken[0]}"
    if not telling:
        return "no F2P test is left that fails without the fix and passes with it each time"
    return ""


def _said(found: Finding, assay: Assay, gold_runs: int) -> str:
    parts = ["sound" if found.sound else f"not sound: {found.why}"]
    most = wilson(0, gold_runs)[1]
    parts.append(f"{len(assay.trials)} runs, {gold_runs} of gold")
    if found.flaky:
        worst = max(found.flaky, key=lambda rate: rate.odd / rate.runs)
        low, high = worst.interval
        parts.append(
            f"{len(found.quarantined)} tests flake, worst {worst.odd} of {worst.runs} ({low:.0%} to {high:.0%})"
        )
    else:
        parts.append(f"no test flaked (each below {most:.0%})")
    if found.stubs:
        parts.append(f"{len(found.stubs)} F2P tests pass for a stub")
    if assay.faults is not None and assay.faults.made:
        made = assay.faults.made
        parts.append(f"{made - len(assay.faults.survived)} of {made} mutants of gold are noticed")
    return "; ".join(parts)
