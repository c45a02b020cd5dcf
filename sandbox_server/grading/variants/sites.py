"""Finds the expectations (sites) of a test, and how each can be made false."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from random import Random

from sandbox_server.grading.variants.arranging import arranged
from sandbox_server.grading.variants.base import Edit, Source, Variant, best_first
from sandbox_server.grading.variants.borrowing import Pool, borrowed, draws
from sandbox_server.grading.variants.exceptions import another, names_one
from sandbox_server.grading.variants.expected import (
    TOLERANT,
    Function,
    Scope,
    bindings,
    expected_side,
    loads,
    numbers,
    tail,
    tolerance,
    tolerates,
)
from sandbox_server.grading.variants.literals import beyond, others
from sandbox_server.grading.variants.refusing import refusal

_OPPOSITES = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_NOT = re.compile(rb"not\b[ ]*")
_OPERATOR = re.compile(rb"==|!=|<=|>=|<|>|\bis\s+not\b|\bis\b|\bnot\s+in\b|\bin\b")

_PAIRS = (
    ("assertEqual", "assertNotEqual"),
    ("assertTrue", "assertFalse"),
    ("assertIn", "assertNotIn"),
    ("assertIs", "assertIsNot"),
    ("assertIsNone", "assertIsNotNone"),
    ("assertIsInstance", "assertNotIsInstance"),
    ("assertGreater", "assertLessEqual"),
    ("assertLess", "assertGreaterEqual"),
    ("assertAlmostEqual", "assertNotAlmostEqual"),
    ("assertRegex", "assertNotRegex"),
    ("assertContains", "assertNotContains"),
    ("assert_called", "assert_not_called"),
    ("assert_awaited", "assert_not_awaited"),
)
OPPOSITE_METHODS = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}

_EQUAL = (
    "assertEqual assertEquals assertListEqual assertTupleEqual assertDictEqual assertSetEqual assertSequenceEqual "
    "assertMultiLineEqual assertCountEqual assertItemsEqual assertAlmostEqual assertAlmostEquals assertHTMLEqual "
    "assertXMLEqual assertJSONEqual assertQuerysetEqual assertQuerySetEqual assertURLEqual assert_equal "
    "assert_array_equal assert_allclose assert_almost_equal assert_array_almost_equal assert_identical "
    "assert_frame_equal assert_series_equal eq_ assert_eq"
)
_EQUAL_METHODS = frozenset(_EQUAL.split())
_NEAR_METHODS = frozenset(name for name in _EQUAL_METHODS if "lmost" in name or name.endswith("close"))
_COUNTED_METHODS = frozenset({"assertNumQueries"})
_CALLED = (
    "assert_called_with assert_called_once_with assert_any_call assert_has_calls assert_awaited_with "
    "assert_awaited_once_with assert_any_await assert_has_awaits assert_outcomes"
)
_CALLED_METHODS = frozenset(_CALLED.split())
"""Each argument is expected. Source: unittest.mock, pytest's RunResult."""
_LINE_METHODS = frozenset({"fnmatch_lines", "fnmatch_lines_random", "re_match_lines", "re_match_lines_random"})
"""Of pytest's LineMatcher: the first argument has the patterns of lines."""
_RAISING = (
    "raises assertRaises assertRaisesRegex assertRaisesRegexp assertRaisesMessage assert_raises warns assertWarns "
    "assertWarnsRegex assertWarnsMessage assert_raises_regex"
)
_RAISES = frozenset(_RAISING.split())
_PATTERNED = frozenset({"assertRaisesRegex", "assertRaisesRegexp", "assertWarnsRegex", "assert_raises_regex"})
_TEXTED = frozenset({"assertRaisesMessage", "assertWarnsMessage"})

_SHORT = 8  # characters; a text this short may occur in another one by chance


@dataclass(frozen=True, slots=True)
class Site:
    """One stated expectation."""

    expected: tuple[ast.expr, ...] = ()
    """The syntax nodes of the expected values."""
    words: bool = False
    """Whether the values are regular expressions."""
    exact: bool = False
    """Whether the result must equal the values."""
    near: tuple[float, float] | None = None
    """(relative, absolute) tolerance, if one is given: the values are numbers, and a false one must lie beyond it."""
    reasons: tuple[str, ...] = ()
    fixed: tuple[Variant, ...] = ()
    """Variants that do not change a literal."""
    refused: tuple[Variant, ...] = ()
    """Variants that are used only if no literal can be changed."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A function of the test file that compares something with one of its parameters."""

    parameters: tuple[str, ...]
    """Parameters that can be given by position, without `self`."""
    expected: frozenset[str]
    """Parameters (of any kind) that the function reads only as expectations."""
    patterns: frozenset[str]
    """Parameters in `expected` that are regular expressions."""

    def site(self, call: ast.Call, *, words: bool) -> Site:
        """The site made of the call's arguments for expected parameters; `words`: for the regular expressions only."""
        names = self.patterns if words else self.expected - self.patterns
        given = dict(zip(self.parameters, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        return Site(tuple(value for name, value in given.items() if name in names), words=words, exact=not words)


Helpers = Mapping[str, Helper]
"""By the function's name."""


def sites(source: Source, body: Iterable[ast.stmt], helpers: Helpers | None = None) -> Iterator[Site]:
    """Sites in a test's statements, and in functions defined inside the test, which it may run (`asyncio.run(go())`).

    `helpers`: functions whose calls are sites; None: the helpers that `source` defines or imports.
    """
    helpers = source.once(_helpers) if helpers is None else helpers
    for statement in body:
        yield from _of_statement(source, statement, helpers)
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from sites(source, [inner], helpers)
            elif isinstance(inner, ast.ExceptHandler | ast.match_case):
                yield from sites(source, inner.body, helpers)


def _helpers(source: Source) -> Helpers:
    """Functions with parameters for expected values, in the file or in the test files that it imports from.

    Tests are left out, and so are names that two functions have.
    """
    found: dict[str, Helper] = {}
    names = Counter[str]()
    for one in (source, *source.beside):
        defined, helping = one.once(_defined_helpers)
        found |= {name: helper for name, helper in helping.items() if not names[name]}
        names.update(defined)
    return {name: helper for name, helper in found.items() if names[name] == 1}


def _defined_helpers(source: Source) -> tuple[Set[str], Helpers]:
    """(names of all functions that are not tests, the helpers among these functions)."""
    defined = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test")
    ]
    alone = {name for name, count in Counter(node.name for node in defined).items() if count == 1}
    unique = [node for node in defined if node.name in alone]
    helpers = {node.name: helper for node in unique if (helper := _helper(source, node)).expected}
    return {node.name for node in defined}, helpers


def _helper(source: Source, function: Function) -> Helper:
    placed = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if placed[:1] in (["self"], ["cls"]):
        del placed[0]
    cases = dict.fromkeys([*placed, *(argument.arg for argument in function.args.kwonlyargs)])
    plain, patterns = (scope_of(source, function, cases, {}) for _ in range(2))
    for site in sites(source, function.body, {}):
        for expected in site.expected:
            for _ in (patterns if site.words else plain).literals(expected):
                pass  # iterating makes the scope record in `met` which parameters it finds
    return Helper(tuple(placed), frozenset(plain.met | patterns.met), frozenset(patterns.met))


def _of_statement(source: Source, statement: ast.stmt, helpers: Helpers) -> Iterator[Site]:
    match statement:
        case ast.Assert(test=test):
            refused = refusal(source, statement, [test])
            yield from (replace(site, refused=refused) for site in _of_test(source, test))
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=stated) as call) if _asserts(name):
            refused = refusal(source, statement, stated)
            yield from (replace(site, refused=refused) for site in _of_call(source, call, helpers))
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            yield from _of_call(source, call, helpers)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if isinstance(item.context_expr, ast.Call):
                    yield from _of_call(source, item.context_expr, helpers)
        case _:
            return


def _of_test(source: Source, test: ast.expr) -> Iterator[Site]:
    """Sites in the expression after `assert`."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _of_test(source, value)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from _of_comparison(source, left, operator, right)
        case ast.Compare(ops=operators, comparators=comparators) if all(isinstance(op, ast.Eq) for op in operators):
            yield Site((comparators[-1],), exact=True, fixed=_negated(source, test))
        case ast.UnaryOp(op=ast.Not()):
            start = source.start(test)
            words = _NOT.match(source.text, start)
            if words is not None:
                yield Site(fixed=(Variant("swap", (Edit(start, words.end(), ""),)),))
        case ast.Constant():
            return
        case _:
            yield Site(fixed=_negated(source, test))


def _of_comparison(source: Source, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Iterator[Site]:
    fixed = _swapped(source, left, operator, right)
    if isinstance(operator, ast.Eq):
        match expected_side(left, right):
            case (ast.Call(func=func) as call,) if tail(func) in TOLERANT and tolerates(call, 1):
                near = tolerance(call, 1)
                yield Site(tuple(call.args[:1]) if near else (), near=near, fixed=fixed)
            case expected:
                yield Site(expected, exact=True, fixed=fixed)
    elif isinstance(operator, ast.Is) and isinstance(right, ast.Constant) and isinstance(right.value, bool):
        yield Site((right,), fixed=fixed)
    elif isinstance(operator, ast.In) and isinstance(left, ast.Constant) and len(str(left.value)) > _SHORT:
        yield Site((left,), fixed=fixed)
    else:
        yield Site(fixed=fixed)


def _swapped(source: Source, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> tuple[Variant, ...]:
    begin, end = source.end(left), source.start(right)
    gap = source.text[begin:end]
    found = _OPERATOR.search(gap)
    if found is None or b"#" in gap:
        return ()
    return (Variant("swap", (Edit(begin + found.start(), begin + found.end(), _OPPOSITES[type(operator)]),)),)


def _negated(source: Source, test: ast.expr) -> tuple[Variant, ...]:
    start, end = source.start(test), source.end(test)
    if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        return (Variant("swap", (Edit(start, start, "not "),)),)  # as people write it
    return (Variant("swap", (Edit(start, start, "not ("), Edit(end, end, ")"))),)


def _of_call(source: Source, call: ast.Call, helpers: Helpers) -> Iterator[Site]:
    name = tail(call.func)
    if name in _RAISES and call.args:
        yield _of_raises(source, call, name)
        return
    fixed: tuple[Variant, ...] = ()
    if isinstance(call.func, ast.Attribute) and (opposite := OPPOSITE_METHODS.get(name)):
        end = source.end(call.func)
        fixed = (Variant("swap", (Edit(end - len(name), end, opposite),)),)
    if name in _NEAR_METHODS and tolerates(call, 2):
        near = tolerance(call, 2)
        yield Site(expected_side(call.args[0], call.args[1]) if near else (), near=near, fixed=fixed)
    elif name in _EQUAL_METHODS and len(call.args) >= 2:
        exact = name not in _NEAR_METHODS
        yield Site(expected_side(call.args[0], call.args[1]), exact=exact, fixed=fixed)
    elif name in _COUNTED_METHODS and call.args:
        yield Site((call.args[0],))
    elif name in _CALLED_METHODS:
        keywords = [keyword.value for keyword in call.keywords if keyword.arg != "any_order"]
        # Correct code may make more calls than gold, and one of them may be the call that is expected elsewhere.
        yield Site((*call.args, *keywords), exact="_any_" not in name and "_has_" not in name)
    elif name in _LINE_METHODS and call.args:
        yield Site((call.args[0],), words=True, reasons=("Failed",))
    elif helper := helpers.get(name):
        yield helper.site(call, words=False)
        yield helper.site(call, words=True)
    elif fixed or _asserts(name):
        yield Site(fixed=fixed)


def _asserts(name: str) -> bool:
    """Whether a method of that name is an assertion, maybe of a class in another file."""
    return name.startswith("assert") and name not in _RAISES


def _of_raises(source: Source, call: ast.Call, name: str) -> Site:
    """Variants with another exception, and with another message if one is expected."""
    fixed: tuple[Variant, ...] = ()
    expected = tuple(keyword.value for keyword in call.keywords if keyword.arg in ("match", "expected_message"))
    if name in _PATTERNED | _TEXTED:
        expected += tuple(call.args[1:2])
    raised = call.args[0]
    if names_one(raised):
        kind = tail(raised)
        drawn = draws(source, raised)
        texts = [another(kind, warning="arn" in name, nth=drawn + nth) for nth in range(2)]
        fixed = tuple(Variant("error", (source.replaced(raised, text),), (kind,)) for text in texts)
    # Messages of exceptions are regular expressions, except those of assertRaisesMessage.
    return Site(expected, words=name not in _TEXTED, reasons=("Failed",), fixed=fixed)


def variants_of(source: Source, body: Sequence[ast.stmt], scope: Scope, rng: Random, pool: Pool = ()) -> list[Variant]:
    """All variants of a test, best kinds first; `pool` holds the expected literals of the file's tests."""
    found: list[Variant] = []
    for number, site in enumerate(sites(source, body)):
        made: list[Variant] = []
        for expected in site.expected:
            if site.near is not None:
                made += _beyond(source, expected, rng, site.near)
                continue
            literals = list(scope.literals(expected))
            made += literal_variants(source, literals, rng, site.words, site.reasons)
            if site.exact:
                made += [variant for literal in literals for variant in borrowed(source, literal, pool, rng)]
        made += [*site.fixed, *(() if made else site.refused)]
        found += [replace(variant, site=f"assertion {number}") for variant in made]
    rng.shuffle(found)
    return best_first(found)


def _beyond(source: Source, expected: ast.expr, rng: Random, near: tuple[float, float]) -> Iterator[Variant]:
    for number in numbers(expected):
        assert isinstance(number, ast.Constant)
        for text in beyond(source.segment(number), number, rng, near)[:2]:
            yield Variant("value", (source.replaced(number, text),))


def expectations(source: Source, function: Function) -> list[ast.expr]:
    """The literals of a test that a result must equal."""
    scope = scope_of(source, function, {})
    exact = [site for site in sites(source, function.body) if site.exact]
    return [literal for site in exact for expected in site.expected for literal in scope.literals(expected)]


def literal_variants(
    source: Source, literals: Iterable[ast.expr], rng: Random, words: bool = False, reasons: tuple[str, ...] = ()
) -> list[Variant]:
    """One or two variants for each literal; for a sequence, of its values together and of each value."""
    found = []
    for literal in literals:
        found += arranged(source, literal, rng)
        texts = others(source.segment(literal), literal, rng, words=words)
        found += [Variant("value", (source.replaced(literal, text),), reasons) for text in texts[:2]]
    return found


def scope_of(source: Source, function: Function, cases: Mapping[str, object], helpers: Helpers | None = None) -> Scope:
    """The names that `function` reads only in expectations."""
    read = loads(function)
    there: Counter[str] = Counter()
    for site in sites(source, function.body, helpers):
        for expected in site.expected:
            there.update(loads(expected))
    alone = {name for name, count in there.items() if read.get(name) == count}
    bound = bindings(function)
    return Scope(
        {name: values for name, values in bound.items() if name in alone},
        {name: value for name, value in cases.items() if name in alone},
    )
