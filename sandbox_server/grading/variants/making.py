"""Makes all variants of an instance's tests from its test files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from random import Random

from sandbox_server.grading.variants import lexed_languages
from sandbox_server.grading.variants.base import Edit, Source, Unit, Variant, best_first, overlap, round_robin
from sandbox_server.grading.variants.borrowing import Pool, borrowed
from sandbox_server.grading.variants.cases import (
    Case,
    Table,
    bracketed,
    is_cut,
    labelled,
    parameters,
    renamed,
    tables,
    tests_of,
)
from sandbox_server.grading.variants.expected import Scope
from sandbox_server.grading.variants.finding import FoundTest, find, functions, helper_paths
from sandbox_server.grading.variants.repository_tests import Places, RepositoryTests, marked
from sandbox_server.grading.variants.sites import expectations, literal_variants, scope_of, variants_of

MOST_VARIANTS = 8
"""Most variants made for a unit; fewer are tried."""


def units(
    files: Mapping[str, bytes],
    fixed: Iterable[str],
    kept: Iterable[str],
    *,
    seed: str,
    base: Mapping[str, bytes] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> list[Unit]:
    """Units of the tests in `fixed` (F2P), by name; tests in `kept` (P2P) stay unaltered.

    `base`: the same files in the repository. `beside`: other files from which `files` may import helpers. The same
    arguments give the same variants.
    """
    rng = Random(seed)
    pools = _Pools()
    known = RepositoryTests(_sources(base or {}))
    fixed, kept = list(fixed), list(kept)
    sources = _sources(files, beside or {})
    made = [unit for found in find(sources, fixed, kept) for unit in _units(found, pools, known.places(found), rng)]
    return [*made, *lexed_languages.units(files, fixed, kept, rng, base=base or {}, most=MOST_VARIANTS)]


def unnamed_units(
    files: Mapping[str, bytes],
    *,
    seed: str,
    base: Mapping[str, bytes] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> list[Unit]:
    """Units of all test functions in `files`, for rows that name no tests; `base` and `beside` as in `units`."""
    rng = Random(seed)
    pools = _Pools()
    known = RepositoryTests(_sources(base or {}))
    found = [one for source in _sources(files, beside or {}) for one in functions(source)]
    return [unit for one in found if (unit := _with_cases(one, pools, known.places(one), rng)).variants]


def module_unit(path: str, text: bytes, *, seed: str) -> Unit | None:
    """The unit of a script that asserts outside of functions."""
    source = Source.of(path, text)
    if source is None:
        return None
    found = _sound(source, variants_of(source, source.tree.body, Scope(), Random(seed)), by_site=False)
    return Unit(path, "", (), tuple(found)) if found else None


class _Pools:
    """The expected literals of each file's tests."""

    def __init__(self) -> None:
        self._by_path: dict[str, Pool] = {}

    def of(self, source: Source) -> Pool:
        if source.path not in self._by_path:
            there = functions(source)
            self._by_path[source.path] = [one for found in there for one in expectations(source, found.function)]
        return self._by_path[source.path]


def helping(files: Mapping[str, bytes]) -> list[str]:
    """Paths that `files` may import helpers from and that are not among them."""
    return sorted({path for source in _sources(files) for path in helper_paths(source)} - files.keys())


def _sources(files: Mapping[str, bytes], beside: Mapping[str, bytes] | None = None) -> list[Source]:
    """The Python files among `files`; `beside`: other files that they may import from, None if that does not matter."""
    found = (Source.of(path, text) for path, text in sorted(files.items()) if path.endswith(".py"))
    sources = [source for source in found if source is not None]
    if beside is None:
        return sources
    there = {source.path: source for source in (*_sources(beside), *sources)}
    return [
        replace(source, beside=[there[path] for path in helper_paths(source) if path in there]) for source in sources
    ]


def _units(found: FoundTest, pools: _Pools, known: Places, rng: Random) -> Iterator[Unit]:
    cases = tables(found.source, found.function)
    scope = scope_of(found.source, found.function, parameters(cases))
    whole = _whole(found, pools, scope, known, rng)  # this also finds the parameters that are expectations
    by_case = list(_of_cases(found, cases, scope, known, rng)) if cases else []
    covered = {test for unit in by_case for test in unit.tests}
    # Alter by case if that covers all tests, or if some cases are P2P tests, which must stay unaltered.
    if not found.kept and whole.variants and covered != set(found.fixed):
        yield whole
    else:
        yield from by_case or ([] if found.kept or not whole.variants else [whole])


def _with_cases(found: FoundTest, pools: _Pools, known: Places, rng: Random) -> Unit:
    """One unit for a function and its cases: without test names the cases cannot be told apart."""
    cases = tables(found.source, found.function)
    scope = scope_of(found.source, found.function, parameters(cases))
    whole = _whole(found, pools, scope, known, rng)  # this also finds the parameters that are expectations
    rows = []
    for table in cases:
        for case in table:
            made = _of_case(found.source, table, case, scope.met, rng)
            rows += [replace(variant, site=f"{variant.site} at {found.source.start(case.row)}") for variant in made]
    rng.shuffle(rows)
    return whole.with_variants(_sound(found.source, best_first([*whole.variants, *marked(rows, known)]), by_site=False))


def _whole(found: FoundTest, pools: _Pools, scope: Scope, known: Places, rng: Random) -> Unit:
    made = variants_of(found.source, found.function.body, scope, rng, pools.of(found.source))
    return Unit(found.source.path, found.name, tuple(found.fixed), tuple(_sound(found.source, marked(made, known))))


def _of_cases(found: FoundTest, cases: Sequence[Table], scope: Scope, known: Places, rng: Random) -> Iterator[Unit]:
    """One unit for each table row that sets an expected value."""
    names = bracketed([*found.fixed, *found.kept])
    source = found.source
    taken: set[str] = set()
    for at, table in enumerate(cases):
        for case in table:
            tests = tests_of(cases, at, case, names)
            if not tests or taken.intersection(tests) or set(tests) - set(found.fixed):
                continue
            name = f"{found.name}[{names[tests[0]]}]"
            made = _of_case(source, table, case, scope.met - case.shown, rng)
            if sound := _sound(source, marked(made, known)):
                taken.update(tests)
                yield Unit(source.path, name, tuple(tests), tuple(sound))
                continue
            word = f"{rng.getrandbits(24):06x}"
            label = () if any(map(is_cut, tests)) else labelled(source, case, word)
            made = _of_case(source, table, case, scope.met & case.shown, rng) if label else []
            if sound := _sound(source, marked(made, known), label):
                taken.update(tests)
                aliases = tuple(renamed(cases, at, case, test, word) for test in tests)
                yield Unit(source.path, name, tuple(tests), tuple(sound), label, aliases)


def _of_case(source: Source, table: Table, case: Case, names: Set[str], rng: Random) -> list[Variant]:
    """Variants that change these parameters in the row."""
    found: list[Variant] = []
    for name in sorted(names & case.values.keys()):
        literals = list(Scope().literals(case.values[name]))
        pool = [one for row in table if row is not case for one in Scope().literals(row.values[name])]
        made = literal_variants(source, literals, rng)
        made += [variant for literal in literals for variant in borrowed(source, literal, pool, rng)]
        found += [replace(variant, site=name) for variant in made]
    rng.shuffle(found)
    return best_first(found)


def _sound(
    source: Source, variants: Iterable[Variant], label: Sequence[Edit] = (), *, by_site: bool = True
) -> list[Variant]:
    """Variants with which the file still parses, those that are not public first; at most two change the same place.

    `by_site`: sites take turns. Rows without test names have the best kinds first instead: one exit code can show only
    one altered test per run, so each variant must fool code that takes plausible values from the tests.
    """
    kept: list[Variant] = []
    ordered = round_robin(list(variants)) if by_site else variants
    for variant in sorted(ordered, key=lambda variant: variant.public):
        if len(kept) == MOST_VARIANTS:
            break
        if sum(overlap(variant, other) for other in kept) < 2 and source.compiles([*variant.edits, *label]):
            kept.append(variant)
    return kept
