"""All variants of an instance's tests, from the text of its test files."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from sandbox_server.grading.variants.base import Edit, Source, Unit, Variant, best_first, edited, overlap
from sandbox_server.grading.variants.cases import Case, Table, bracketed, parameters, tables, tests_of
from sandbox_server.grading.variants.expected import Scope
from sandbox_server.grading.variants.finding import Found, find, functions
from sandbox_server.grading.variants.sites import literal_variants, scope_of, variants_of

MOST_VARIANTS = 8
"""Of one unit; more than are tried."""


def units(files: Mapping[str, bytes], fixed: Iterable[str], kept: Iterable[str], *, seed: str) -> list[Unit]:
    """Of the tests `fixed` (F2P), by their names; tests of `kept` (P2P) stay what they are.

    The same arguments give the same variants.
    """
    rng = Random(seed)
    return [unit for found in find(_sources(files), fixed, kept) for unit in _units(found, rng)]


def unnamed_units(files: Mapping[str, bytes], *, seed: str) -> list[Unit]:
    """Of every test function in `files`, where the row names none."""
    rng = Random(seed)
    found = [one for source in _sources(files) for one in functions(source)]
    return [unit for one in found if (unit := _with_cases(one, rng)).variants]


def module_unit(path: str, text: bytes, *, seed: str) -> Unit | None:
    """Of a script that asserts outside of any function."""
    source = Source.of(path, text)
    if source is None:
        return None
    found = _sound(source, variants_of(source, source.tree.body, Scope(), Random(seed)))
    return Unit(path, "", (), tuple(found)) if found else None


def _sources(files: Mapping[str, bytes]) -> list[Source]:
    found = (Source.of(path, text) for path, text in sorted(files.items()) if path.endswith(".py"))
    return [source for source in found if source is not None]


def _units(found: Found, rng: Random) -> Iterator[Unit]:
    cases = tables(found.function)
    scope = scope_of(found.source, found.function, parameters(cases))
    whole = _whole(found, scope, rng)  # also finds out which parameters stand for an expectation
    by_case = list(_of_cases(found, cases, scope, rng)) if cases else []
    covered = {test for unit in by_case for test in unit.tests}
    # by case where that covers all of them, or where the function is a P2P test too: that one must stay as it is
    if not found.kept and whole.variants and covered != set(found.fixed):
        yield whole
    else:
        yield from by_case or ([] if found.kept or not whole.variants else [whole])


def _with_cases(found: Found, rng: Random) -> Unit:
    """One unit of a function and its cases: without names nothing tells one case from another."""
    cases = tables(found.function)
    scope = scope_of(found.source, found.function, parameters(cases))
    whole = _whole(found, scope, rng)  # also finds out which parameters stand for an expectation
    rows = [variant for table in cases for case in table for variant in _of_case(found.source, case, scope, rng)]
    rng.shuffle(rows)
    return whole.with_variants(_sound(found.source, best_first([*whole.variants, *rows])))


def _whole(found: Found, scope: Scope, rng: Random) -> Unit:
    made = variants_of(found.source, found.function.body, scope, rng)
    return Unit(found.source.path, found.name, tuple(found.fixed), tuple(_sound(found.source, made)))


def _of_cases(found: Found, cases: Sequence[Table], scope: Scope, rng: Random) -> Iterator[Unit]:
    """A unit for each row of a table that gives an expected value."""
    names = bracketed([*found.fixed, *found.kept])
    taken: set[str] = set()
    for at, table in enumerate(cases):
        for case in table:
            tests = tests_of(cases, at, case, names)
            if not tests or taken.intersection(tests) or set(tests) - set(found.fixed):
                continue
            made = _of_case(found.source, case, scope, rng)
            if sound := _sound(found.source, made):
                taken.update(tests)
                label = names[tests[0]]
                yield Unit(found.source.path, f"{found.name}[{label}]", tuple(tests), tuple(sound))


def _of_case(source: Source, case: Case, scope: Scope, rng: Random) -> list[Variant]:
    """Another value in the row; where the row is named after it, with that name written out."""
    made: list[Variant] = []
    for hidden in (True, False):
        values = [value for name, value in case.values.items() if name in scope.met and (name in case.shown) != hidden]
        named = () if hidden else _kept_name(source, case)
        if values and named is not None:
            found = literal_variants(source, (one for value in values for one in Scope().literals(value)), rng)
            rng.shuffle(found)
            made += [replace(variant, edits=(*variant.edits, *named)) for variant in found]
    return best_first(made)


def _kept_name(source: Source, case: Case) -> tuple[Edit, ...] | None:
    """Edits that make a row a `pytest.param` of the name that it has; None where that cannot be done."""
    if case.label is None or b"import pytest" not in source.text:
        return None
    start, end = source.start(case.row), source.end(case.row)
    given = f", id={case.label!r})"
    if isinstance(case.row, ast.Call):
        return (Edit(end - 1, end, given),)
    if isinstance(case.row, ast.Tuple | ast.List):
        return (Edit(start, start + 1, "pytest.param("), Edit(end - 1, end, given)) if len(case.values) > 1 else None
    return None


def _sound(source: Source, variants: Iterable[Variant]) -> list[Variant]:
    """Those with which the file still compiles; of one place not more than two, so that all are tried."""
    kept: list[Variant] = []
    for variant in variants:
        if len(kept) == MOST_VARIANTS:
            break
        if sum(overlap(variant, other) for other in kept) < 2 and _compiles(edited(source.text, [variant])):
            kept.append(variant)
    return kept


def _compiles(text: bytes) -> bool:
    try:
        ast.parse(text.decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
