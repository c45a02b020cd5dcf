"""Which literals of a test say what is expected: in the expectation itself, or behind a name that it alone uses."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAMES = (
    "dict list tuple set frozenset str bytes int float complex bool array asarray date datetime time timedelta dedent "
    "cleandoc namedtuple sympify mark_safe deque"
)
_MAKERS = frozenset(_NAMES.split())
"""Lower-case callables whose arguments are what they give; classes are told by their capital."""
_TOLERANT = frozenset({"approx"})
"""Only their first argument is a value."""


_TOLERANCES = frozenset({"abs", "rel", "atol", "rtol", "delta", "places", "decimal", "significant", "tol"})

_HINT = re.compile(r"exp(ect|\b|_)|want|desired|correct|answer", re.IGNORECASE)


def tail(callee: ast.expr) -> str:
    """The last name of `a.b.c`; "" where there is none."""
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""


@dataclass(slots=True)
class Scope:
    """Names of a test that stand for an expectation and for nothing else."""

    values: Mapping[str, Sequence[ast.expr]] = field(default_factory=dict)
    """Name -> what it is bound to in the test's own text."""
    cases: Mapping[str, object] = field(default_factory=dict)
    """Names of the test's parameters."""
    met: set[str] = field(default_factory=set)
    """Parameters that were met where something is expected."""

    def literals(self, node: ast.expr) -> Iterator[ast.expr]:
        """The literals in `node`, sequences too, another value of which would make another expectation."""
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict):
            yield node
        for part in self._parts(node):
            yield from self.literals(part)

    def _parts(self, node: ast.expr) -> Iterable[ast.expr]:
        """What `node` is made of."""
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
        if name in _TOLERANT:
            return [] if tolerates(node, 1) else node.args[:1]
        if name in _MAKERS:
            return node.args
        if name[:1].isupper():
            return [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
            return [node.func.value]  # "text".encode()
        return []


def tolerates(call: ast.Call, values: int) -> bool:
    """It says how far off what it compares may be, after so many `values`: code may then meet two expectations."""
    return len(call.args) > values or any(keyword.arg in _TOLERANCES for keyword in call.keywords)


def is_literal(node: ast.expr) -> bool:
    """It holds no name and no call."""
    return not any(isinstance(inner, ast.Name | ast.Call | ast.Attribute | ast.JoinedStr) for inner in ast.walk(node))


def expected_side(left: ast.expr, right: ast.expr) -> tuple[ast.expr, ...]:
    """Of two that must be equal the one that says what is expected: by its name, a literal, else the right one."""
    if is_literal(left) and not is_literal(right):
        return (left,)
    if _HINT.match(tail(left)) and not _HINT.match(tail(right)):
        return (left,)
    return (right,)


def bindings(function: Function) -> dict[str, list[ast.expr]]:
    """Name -> the expressions that the function itself binds it to; names bound in other ways too are left out."""
    found: dict[str, list[ast.expr]] = {}
    known: Counter[str] = Counter()
    stored: Counter[str] = Counter(
        argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
    )
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored[node.id] += 1
        for name, values in _bound(node):
            known[name] += 1
            found.setdefault(name, []).extend(values)
    return {name: values for name, values in found.items() if known[name] == stored[name]}


def _bound(node: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
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
    """How often each name is read below `node`."""
    found = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load))
    return Counter(inner.id for inner in found)
