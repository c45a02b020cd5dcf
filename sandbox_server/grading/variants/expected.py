"""Finds the literals that state an expectation: in the expectation itself, or bound to a name used only there."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAMES = (
    "dict list tuple set frozenset str bytes int float complex bool array asarray date datetime time timedelta dedent "
    "cleandoc namedtuple sympify mark_safe deque call"
)
_MAKERS = frozenset(_NAMES.split())
"""Lower-case callables whose result shows their arguments; classes are recognised by their capital."""
TOLERANT = frozenset({"approx"})
"""Callables of which only the first argument is a value."""


_TOLERANCES = frozenset({"abs", "rel", "atol", "rtol", "delta", "places", "decimal", "significant", "tol"})
_OWN = 1e-6
"""Relative tolerance that is added to the given ones: the default of `approx`, the largest of these functions."""

_MOST_GIVEN = 300  # digits of a float

_HINT = re.compile(r"exp(ect|\b|_)|want|desired|correct|answer", re.IGNORECASE)


def tail(callee: ast.expr) -> str:
    """The last name of `a.b.c`; "" if there is none."""
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""


@dataclass(slots=True)
class Scope:
    """Names in a test that are used for expectations only."""

    values: Mapping[str, Sequence[ast.expr]] = field(default_factory=dict)
    """Name -> expressions that the test binds it to."""
    cases: Mapping[str, object] = field(default_factory=dict)
    """The test's parameters."""
    met: set[str] = field(default_factory=set)
    """Parameters found in expectations so far."""

    def literals(self, node: ast.expr) -> Iterator[ast.expr]:
        """Literals in `node`, sequences included, whose change would change the expectation."""
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict):
            yield node
        for part in self._parts(node):
            yield from self.literals(part)

    def _parts(self, node: ast.expr) -> Iterable[ast.expr]:
        """Parts of `node` that its value depends on."""
        match node:
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                return [operand]
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return elements
            case ast.Dict(values=values):
                return values
            case ast.BinOp(left=left, right=right):
                return [left, right]
            case ast.Call():
                return self._of_call(node)
            case ast.ListComp(generators=[ast.comprehension(iter=values)]):
                return [values]
            case ast.Name(id=name):
                self.met.update({name} & self.cases.keys())
                return self.values.get(name, ())
        return ()

    def _of_call(self, node: ast.Call) -> list[ast.expr]:
        name = tail(node.func)
        if name in TOLERANT:
            return [] if tolerates(node, 1) else node.args[:1]
        if name in _MAKERS:
            return node.args
        if name[:1].isupper():
            return [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
            return [node.func.value]  # "text".encode()
        return []


def tolerates(call: ast.Call, values: int) -> bool:
    """Whether the call has a tolerance after its first `values` arguments: code may then meet two expectations."""
    return len(call.args) > values or any(keyword.arg in _TOLERANCES for keyword in call.keywords)


def tolerance(call: ast.Call, values: int) -> tuple[float, float] | None:
    """(relative, absolute) tolerance given by keywords as numbers; None if it is given in another way."""
    relative, absolute = _OWN, 0.0
    for keyword in call.keywords:
        if keyword.arg in _TOLERANCES:
            match keyword.value:
                case ast.Constant(value=int() | float() as given) if abs(given) < _MOST_GIVEN:
                    pass
                case _:
                    return None
            match keyword.arg:
                case "rel" | "rtol":
                    relative += given
                case "abs" | "atol" | "delta":
                    absolute += given
                case "places" | "decimal":
                    absolute += 1.5 * 10.0**-given
                case _:
                    return None
    return None if len(call.args) > values else (relative, absolute)


def numbers(node: ast.expr) -> Iterator[ast.expr]:
    """The numbers that `node` consists of; none if it computes anything."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield node
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield from numbers(operand)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield from numbers(part)
        case ast.Call(func=func, args=[values, *_]) if tail(func) in ("array", "asarray"):
            yield from numbers(values)


def is_literal(node: ast.expr) -> bool:
    """Whether `node` holds no name and no call."""
    return not any(isinstance(inner, ast.Name | ast.Call | ast.Attribute | ast.JoinedStr) for inner in ast.walk(node))


def expected_side(left: ast.expr, right: ast.expr) -> tuple[ast.expr, ...]:
    """The side of an equality that states the expectation: by its name, else the literal, else the right one."""
    if is_literal(left) and not is_literal(right):
        return (left,)
    if _HINT.match(tail(left)) and not _HINT.match(tail(right)):
        return (left,)
    return (right,)


def bindings(function: Function) -> dict[str, list[ast.expr]]:
    """Name -> expressions that the function binds it to; names that are also bound in other ways are left out."""
    found: dict[str, list[ast.expr]] = {}
    known: Counter[str] = Counter()
    stored: Counter[str] = Counter(
        argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
    )
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored[node.id] += 1
        for name, values in bound(node):
            known[name] += 1
            found.setdefault(name, []).extend(values)
    return {name: values for name, values in found.items() if known[name] == stored[name]}


def bound(node: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """(name, expressions) for each name that the statement binds in a way that can be read."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, [value]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, [value]
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            yield name, [value]
        case ast.For(target=ast.Name(id=name), iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
            yield name, rows
        case ast.For(target=ast.Tuple(elts=targets), iter=ast.List(elts=rows) | ast.Tuple(elts=rows)):
            for at, target in enumerate(targets):
                if isinstance(target, ast.Name):
                    yield target.id, _column(rows, at)
        case _:
            return


def _column(rows: Sequence[ast.expr], at: int) -> list[ast.expr]:
    return [row.elts[at] for row in rows if isinstance(row, ast.Tuple | ast.List) and at < len(row.elts)]


def loads(node: ast.AST) -> Counter[str]:
    """How often each name is read in `node`."""
    found = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load))
    return Counter(inner.id for inner in found)
