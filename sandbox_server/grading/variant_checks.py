"""Makes variants (altered tests) and checks that each is false, before any patch is judged by them.

A variant is kept if gold fails exactly the altered tests, by their assertion, and the unpatched tree fails them too.
One run tries many variants. If gold gives no results in it, or fails an unaltered test, the variants are split in
halves, which are run separately, until the one at fault is found.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random

from sandbox_server import telemetry
from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.altering import (
    COMMAND,
    Runs,
    VariantByUnit,
    Variants,
    focus_on,
    gather_or_cancel,
    inline,
    names_tests,
    run_under,
    test_paths,
)
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.data_units import units_of_data
from sandbox_server.grading.odds import patterns
from sandbox_server.grading.reasons import exceptions_of, failed_as_expected, failures, mentions
from sandbox_server.grading.run_gate import RunGate
from sandbox_server.grading.stubbing import fix_changes, limited, read_fix, stub_passes
from sandbox_server.grading.variants.base import WEAK, Unit, Variant
from sandbox_server.grading.variants.data import is_data, is_read, variants_of_data
from sandbox_server.grading.variants.finding import inherited_from
from sandbox_server.grading.variants.making import MOST_VARIANTS, helping, module_unit, units, unnamed_units
from sandbox_server.grading.variants.without_comments import without_comments
from sandbox_server.verdicts import VerdictName

log = telemetry.logger(__name__)

_GRADED = (VerdictName.RESOLVED, VerdictName.UNRESOLVED)
_ROUNDS = 3
"""Variants that are tried for each unit; more are tried only for units of which none was usable."""
_MOST_RUNS = 48


def _expected_files(instance: TaskInstance) -> dict[str, None]:
    """Paths of the test files, then of the Python files that gold changes, as far as the row names them."""
    paths = dict.fromkeys(test_paths(instance))
    with suppress(UnreadablePatch):  # `_stubs` reports it
        paths |= dict.fromkeys(fix_changes(instance))
    return paths


def _quiet(files: Mapping[str, bytes], names: Sequence[str]) -> dict[str, bytes]:
    return {path: without_comments(path, text, names) for path, text in files.items()}


def _of_data(files: Mapping[str, bytes], base: Mapping[str, bytes], rng: Random) -> list[Unit]:
    made = {path: variants_of_data(text, base.get(path, b""), rng) for path, text in files.items()}
    return [Unit(path, "", (), (variant,)) for path, variants in made.items() for variant in variants]


class VariantChecks:
    """Makes the variants of one instance and keeps those that its runs show to be false."""

    def __init__(self, runs: Runs, instance: TaskInstance, deadline: float, gate: RunGate) -> None:
        self._runs = runs
        self._gate = gate
        self._instance = instance
        self._gold = instance.gold_patch.encode()
        self._deadline = deadline
        self._count = 0
        self._files: dict[str, str] = {}
        self._comments_removed = False
        """Whether comments or messages were removed from the test files."""
        self._inherited: Mapping[str, bytes] | None = None
        """Files of the repository from which the row's test classes may inherit tests; None: not read yet."""
        self._beside: Mapping[str, bytes] = {}
        """Files of the repository from which the row's test files may import helpers."""
        self._base_files: Mapping[str, bytes] = {}
        """Files of the unpatched tree: those that hold tests, and those that gold changes."""
        self._units: list[Unit] = []
        self._data: list[Unit] = []
        """One unit for each variant of a data file of the tests. Which tests read the file is not known yet."""
        self._kept: dict[int, list[Variant]] = {}
        self._named = names_tests(instance)
        self._always: frozenset[str] = frozenset()
        """Tests that gold passes."""
        self._in_log: frozenset[str] = frozenset()
        """F2P tests whose names appear in gold's log."""
        self._unbuilt: frozenset[str] = frozenset()
        """Tests of `_in_log` that do not run at all on the unpatched tree: they fail there whatever they expect."""
        self._gold_s = 0.0

    async def variants(self) -> Variants:
        """The variants found by the deadline. Raises GraderBroken (gold gives no results), ServiceError."""
        if not self._gold.strip():
            return Variants(why="no gold patch is known")
        await self._read()
        if not (self._units or self._data):
            why = "none of its tests says what it expects in a way that can be altered"
            return Variants(why=why, stubs=await self._stubs(), runs=self._count)
        if why := await self._base():
            return Variants(why=why, runs=self._count)
        stubs = await self._stubs()
        for number in range(MOST_VARIANTS):
            if not await self._round(number):
                break
        await self._alter_data()
        focus = await self._rehearse()
        kept = [unit.with_variants(self._best(at)) for at, unit in enumerate(self._units) if self._kept.get(at)]
        paths = {unit.path for unit in kept}
        files = {path: text for path, text in self._files.items() if path in paths}
        why = "" if kept else "gold does not fail under any altered test for the right reason"
        if why and self._over():
            why = "no usable false test was found in time: raise SANDBOX_CERTIFY_TIMEOUT_S, `instances certify --again`"
        return Variants(tuple(kept), why, files, stubs, self._count, focus=focus)

    async def _stubs(self) -> tuple[str, ...]:
        """F2P tests that pass with a stub of gold's functions.

        () if fewer than two F2P tests are named: then a patch cannot earn a part of the reward by some of them.
        """
        if not self._named or len(self._instance.fail_to_pass) < 2:
            return ()
        instance = limited(self._instance, self._gold_s or self._instance.eval_timeout_s)

        async def run(patch: bytes, altered: Mapping[str, bytes]) -> TestRun:
            await self._gate.wait()
            self._count += 1
            return await self._runs.run_altered(instance, patch, altered)

        try:
            fix = await read_fix(self._runs, instance, self._base_files)
        except UnreadablePatch as error:
            log.warning("no stubs", instance_id=instance.instance_id, error=str(error))
            return ()
        found = await stub_passes(run, fix, instance.fail_to_pass) if fix else {}
        passed = {test for tests in found.values() for test in tests}
        return tuple(test for test in instance.fail_to_pass if test in passed)

    async def _read(self, *, as_written: bool = False) -> None:
        """Read the test files and find all units in them that can be altered.

        `as_written`: keep the files' comments and messages.
        """
        instance = self._instance
        expected = _expected_files(instance)
        texts = await self._runs.read(instance, expected)
        names = [*instance.fail_to_pass, *instance.pass_to_pass]
        bare = instance.model_copy(update={"files": {}})  # the row's files would replace the repository's
        if self._inherited is None:
            paths = await asyncio.to_thread(inherited_from, texts.tests, instance.fail_to_pass)
            wanted = sorted({*paths, *await asyncio.to_thread(helping, texts.tests)})
            there = await self._runs.files_with(bare, b"", wanted) if wanted else {}
            self._inherited = {path: text for path, text in there.items() if path in paths}
            self._beside = {path: text for path, text in there.items() if path not in paths}
        tests = {**self._inherited, **texts.tests}
        files = dict(tests) if as_written else await asyncio.to_thread(_quiet, tests, names)
        self._comments_removed = files != tests
        self._base_files = texts.base
        seed = f"{instance.instance_id}:{instance.row_sha256}"
        base = {**self._inherited, **{path: text for path, text in texts.base.items() if path in files}}
        if unexpected := texts.tests.keys() - expected:
            base |= await self._runs.files_with(bare, b"", sorted(unexpected))
        base = base if as_written else await asyncio.to_thread(_quiet, base, names)
        beside = self._beside
        if self._named:
            fixed, kept = instance.fail_to_pass, instance.pass_to_pass
            self._units = await asyncio.to_thread(units, files, fixed, kept, seed=seed, base=base, beside=beside)
        else:
            self._units = await asyncio.to_thread(unnamed_units, files, seed=seed, base=base, beside=beside)
            text = inline(instance)
            if not self._units and text is not None and (unit := module_unit(COMMAND, text, seed=seed)):
                files[COMMAND] = text
                self._units = [unit]
        self._files = {path: files[path].decode() for path in {unit.path for unit in self._units}}
        if self._named:
            data = {path: text for path, text in sorted(texts.tests.items()) if is_data(path) or is_read(path, text)}
            self._data = await asyncio.to_thread(_of_data, data, base, Random(seed))
            self._files |= {unit.path: data[unit.path].decode() for unit in self._data}

    async def _base(self) -> str:
        """Run gold and the unpatched tree, and record what gold passes. Returns why the instance cannot be certified.

        "" if it can.
        """
        gold, empty = await gather_or_cancel(self._run(self._gold, {}), self._run(b"", {}))
        if gold.name is not VerdictName.RESOLVED and self._comments_removed:
            # A removed comment or message may have had an effect, or may have been something else.
            await self._read(as_written=True)
            gold, empty = await gather_or_cancel(self._run(self._gold, {}), self._run(b"", {}))
        if gold.name not in _GRADED:
            raise GraderBroken(f"gold gives no results, so its tests cannot be certified: {gold.cause}")
        if gold.name is not VerdictName.RESOLVED:
            return f"gold does not resolve it: {gold.cause}"
        if empty.name is VerdictName.RESOLVED:
            return "the unpatched tree resolves it"
        self._always, self._gold_s = gold.passed, round(gold.timings_s.get("tests", 0.0), 2)
        self._in_log = frozenset(test for test in self._instance.fail_to_pass if mentions(gold.log, test))
        self._unbuilt = frozenset(test for test in self._in_log if not mentions(empty.log, test))
        if not self._named:
            # Tests that pass on the unpatched tree stay unaltered, as P2P do: the repository may hold their true text.
            seen = failures(empty.log)
            failing = [unit for unit in self._units if exceptions_of(seen, unit.name)]
            self._units = failing or self._units
        return ""

    async def _round(self, number: int) -> bool:
        """Try one more variant of each unit that needs one; False if no unit does, or the time is up.

        The first round runs even if the time is up: without any variant, no patch could be confirmed.
        """
        by_unit = {
            at: unit.variants[number]
            for at, unit in enumerate(self._units)
            if number < len(unit.variants) and (number < _ROUNDS or not self._kept.get(at))
        }
        if not by_unit or (number and self._over()):
            return False
        for at in await self._false_among(by_unit):
            self._kept.setdefault(at, []).append(by_unit[at])
        return True

    async def _alter_data(self) -> None:
        """Alter the data files read by those F2P tests that have no variants, or only weak ones."""
        units = enumerate(self._units)
        swapped = {at for at, _ in units if all(variant.kind in WEAK for variant in self._kept.get(at, ()))}
        strong = {test for at in self._kept.keys() - swapped for test in self._units[at].tests}
        weak = frozenset(test for test in self._instance.fail_to_pass if test in self._always - strong)

        async def gold(unit: Unit) -> TestRun | None:
            if self._over():
                return None
            await self._gate.wait()
            self._count += 1
            return await run_under(self._runs, self._instance, self._gold, self._files, [unit], {0: unit.variants[0]})

        bare = weak - {test for at in swapped & self._kept.keys() for test in self._units[at].tests}
        # A Python file that tests read may also be one that they import. It is altered only for tests without variants.
        data = [unit for unit in self._data if is_data(unit.path) or bare]
        for unit in await units_of_data(data if weak else (), weak, self._always, self._in_log, gold):
            met = [at for at in swapped & self._kept.keys() if set(unit.tests) & set(self._units[at].tests)]
            # A test must belong to one unit only. Of two, one could alter it while the other counts it as true.
            if all(set(self._units[at].tests) <= set(unit.tests) for at in met):
                for at in met:
                    del self._kept[at]
                self._kept[len(self._units)] = list(unit.variants)
                self._units.append(unit)

    async def _false_among(self, by_unit: VariantByUnit) -> set[int]:
        """The units in `by_unit` whose variants fail for gold and for the unpatched tree and disturb no other test."""
        tested = [self._run(self._gold, by_unit)]
        if not self._named or {test for at in by_unit for test in self._units[at].tests} - self._unbuilt:
            tested.append(self._run(b"", by_unit))
        gold, *empty = await gather_or_cancel(*tested)
        undisturbed = self._undisturbed(gold, by_unit)
        if undisturbed and (len(by_unit) == 1 or self._tells_apart(gold, by_unit)):
            return {at for at, variant in by_unit.items() if self._is_false(at, variant, gold, *empty)}
        if len(by_unit) == 1 or self._over():
            return set()
        ordered = sorted(by_unit)
        if not undisturbed:
            half = len(ordered) // 2
            parts = [{at: by_unit[at] for at in part} for part in (ordered[:half], ordered[half:])]
            return {at for part in parts for at in await self._false_among(part)}
        found: set[int] = set()
        for at in ordered:  # each alone, as a patch will be judged
            if self._over():
                break
            found |= await self._false_among({at: by_unit[at]})
        return found

    def _undisturbed(self, gold: TestRun, by_unit: VariantByUnit) -> bool:
        if gold.name not in _GRADED:
            return False
        others = self._always - {test for at in by_unit for test in self._units[at].tests}
        return others <= gold.passed

    def _tells_apart(self, gold: TestRun, by_unit: VariantByUnit) -> bool:
        """Whether `gold` shows for each of `by_unit` whether it failed. An exit code alone shows only that some did."""
        if self._named or gold.name is VerdictName.RESOLVED:
            return True
        return bool(failures(gold.log)) and all(self._units[at].name for at in by_unit)

    def _is_false(self, at: int, variant: Variant, gold: TestRun, *empty: TestRun) -> bool:
        unit = self._units[at]
        if self._named:
            # Code that does nothing may pass a test with the opposite assertion. So does a hack that inverts results.
            # Such a variant counts only beside a refusal, which that hack does not pass.
            turned = variant.kind == "swap" and any(kept.kind == "refusal" for kept in self._kept.get(at, ()))
            fails = not any(run.passed.intersection(unit.tests) for run in (gold, *(() if turned else empty)))
            # A test that did not run (the alteration changes its name, or its file does not build) fails with any code,
            # also with code that fakes results.
            fails = fails and all(
                mentions(gold.log, alias) for alias, test in unit.back.items() if test in self._in_log
            )
        else:
            # A unit must have a failure of its own in the log. If the log cannot be parsed, no other unit was altered,
            # and the exit code decides.
            fails = gold.name is VerdictName.UNRESOLVED and all(run.name is not VerdictName.RESOLVED for run in empty)
            seen = failures(gold.log)
            fails = fails and (bool(exceptions_of(seen, unit.name)) if seen and unit.name else True)
        return fails and failed_as_expected(gold.log, (*(unit.aliases or unit.tests), unit.name), variant.reasons)

    async def _rehearse(self) -> str:
        """Run gold as patches will be judged: under a random half of the variants, then under the other half.

        Returns the pytest options that gave correct results; units that deviate even without options are dropped.
        """
        rng = Random(self._instance.instance_id)
        kept = [unit for at, unit in enumerate(self._units) if self._kept.get(at)]
        pytest = all(unit.path.endswith(".py") for unit in kept)
        if len(kept) == 1 and not pytest:
            return ""  # gold has been run under the true test and under each false one
        focus = focus_on(kept) if pytest and "PYTEST_ADDOPTS" not in self._instance.sandbox.env else ""
        for _ in range(3):
            ready = [at for at in range(len(self._units)) if self._kept.get(at)]
            if not ready or self._over():
                break
            if not (wrong := await self._rehearsed(ready, rng, focus)):
                return focus
            if not focus:
                for at in wrong:
                    self._kept.pop(at, None)
            focus = ""
        return ""

    async def _rehearsed(self, ready: Sequence[int], rng: Random, focus: str) -> set[int]:
        """The units that deviated in one rehearsal."""
        if self._named:
            drawn = [frozenset(ready[at] for at in half) for half in patterns(len(ready), 2, rng)]
        else:
            drawn = [frozenset(), frozenset({rng.choice(ready)})]
        halves = [{at: rng.choice(self._best(at)) for at in sorted(half)} for half in drawn]
        runs = await gather_or_cancel(*(self._run(self._gold, half, focus) for half in halves))
        return {at for half, run in zip(halves, runs, strict=True) for at in self._deviating(ready, half, run)}

    def _deviating(self, ready: Sequence[int], half: VariantByUnit, run: TestRun) -> Iterable[int]:
        if not self._named:
            right_code = VerdictName.UNRESOLVED if half else VerdictName.RESOLVED
            yield from () if run.name is right_code else half or ready
            return
        for at in ready:
            passed = run.passed.intersection(self._units[at].tests)
            if passed if at in half else len(passed) < len(self._units[at].tests):
                yield at

    async def _run(self, patch: bytes, by_unit: VariantByUnit, focus: str = "") -> TestRun:
        await self._gate.wait()
        self._count += 1
        # Without alterations the tests keep the row's names.
        units = self._units if by_unit or focus else ()
        return await run_under(self._runs, self._instance, patch, self._files, units, by_unit, focus=focus)

    def _best(self, at: int) -> list[Variant]:
        """The variants of a unit to use: of those that code cannot recognise, the strong (not weak) ones.

        If there are none of either kind, the restriction is dropped. If tests have names and the strong variants cover
        at most one site, weak variants of other sites are added: a hack that recognises alterations of the one site
        must then recognise those too.
        """
        variants = [variant for variant in self._kept[at] if not variant.public] or self._kept[at]
        others = [variant for variant in variants if variant.kind not in WEAK]
        sites = {variant.site for variant in others}
        if not self._named or len(sites) > 1:
            return others or variants
        return [variant for variant in variants if variant.kind not in WEAK or variant.site not in sites]

    def _over(self) -> bool:
        return self._count >= _MOST_RUNS or time.monotonic() - self._gate.waited_s >= self._deadline
