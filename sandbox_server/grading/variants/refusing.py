"""Makes an assertion without an expected value false for any code: what it calls is expected to raise.

The opposite assertion is weaker: code that fails an assertion passes its opposite, so a hack that inverts all results
passes both.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.grading.variants.base import Edit, Source, Variant
from sandbox_server.grading.variants.borrowing import draws
from sandbox_server.grading.variants.exceptions import another
from sandbox_server.grading.variants.expected import tail

_PYTEST = re.compile(rb"^import pytest$", re.MULTILINE)
_RAISES = re.compile(rb"^from [\w.]*pytest import .*\braises\b", re.MULTILINE)
_METHODS = re.compile(r"assert[A-Z]\w*")
_APART = ast.BoolOp | ast.IfExp | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
"""The true test may not run the parts of such a node, or they need names that are not known outside of it."""


def refusal(source: Source, statement: ast.stmt, stated: Sequence[ast.expr]) -> tuple[Variant, ...]:
    """The variant of `statement`, which asserts `stated`, or of the statement before it that computes `stated`.

    () if neither statement calls anything, or if the file imports no `raises`.
    """
    place: ast.stmt | None = statement
    called: ast.expr | ast.stmt | None = _called(stated)
    if called is None:
        place = called = source.once(_makers).get(statement)
    if called is None or place is None:
        return ()
    text, kind = source.segment(called), another("", warning=False, nth=draws(source, called))
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=name))) if _METHODS.fullmatch(name):
            text = f"with {source.segment(owner)}.assertRaises({kind}): {text}"
        case ast.Assert() if source.once(_has_pytest):
            text = f"with pytest.raises({kind}): {text}"
        case ast.Assert() if source.once(_has_raises) and not isinstance(called, ast.Await | ast.stmt):
            text = f"raises({kind}, lambda: {text})"
        case _:
            return ()
    start, end = source.start(place), source.end(place)
    text += "\n" * (source.text.count(b"\n", start, end) - text.count("\n"))  # the lines below stay where they are
    return (Variant("refusal", (Edit(start, end, text),)),)


def _has_pytest(source: Source) -> bool:
    return _PYTEST.search(source.text) is not None


def _has_raises(source: Source) -> bool:
    return _RAISES.search(source.text) is not None


def _called(stated: Sequence[ast.expr]) -> ast.expr | None:
    """The outermost call in `stated` that is not of a built-in function, or a comprehension that makes such calls."""
    both = [one.values if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.And) else [one] for one in stated]
    parts = [part for some in both for part in some]
    for part in parts:
        if _is_call(part) or _calls_in_turn(part):
            return part
        if not isinstance(part, _APART):
            parts += [inner for inner in ast.iter_child_nodes(part) if isinstance(inner, ast.expr)]
    return None


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Await) or (
        isinstance(node, ast.Call) and not hasattr(builtins, tail(node.func) or "len")
    )


def _calls_in_turn(part: ast.expr) -> bool:
    """Whether `part` is a comprehension that calls something, or a call whose first argument is such a generator."""
    match part:
        case ast.ListComp() | ast.SetComp() | ast.DictComp():
            turns: ast.AST = part
        case ast.Call(args=[ast.GeneratorExp() as turns, *_]):
            pass
        case _:
            return False
    return any(_is_call(inner) for inner in ast.walk(turns))


def _makers(source: Source) -> Mapping[ast.stmt, ast.stmt]:
    """Statement -> the last one before it in the same block that sets or changes, by a call, a name that it reads."""
    found: dict[ast.stmt, ast.stmt] = {}
    for block in _blocks(source.tree):
        made: dict[str, ast.stmt] = {}
        for statement in block:
            names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            read = [made[name.id] for name in names if isinstance(name.ctx, ast.Load) and name.id in made]
            if read:
                found[statement] = max(read, key=lambda maker: maker.lineno)
            bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            made = {name: maker for name, maker in made.items() if name not in bound}
            match statement:
                case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if _called([value]):
                    made |= dict.fromkeys(bound, statement)
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=method))):
                    changed = () if method.startswith("assert") else ast.walk(owner)
                    made |= {node.id: statement for node in changed if isinstance(node, ast.Name)}
    return found


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value
