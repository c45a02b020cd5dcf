"""Makes an assertion that states no value false for any code: what it calls is expected to raise.

Code that does not do what an assertion says meets its opposite, so a hack that turns all results round passes both.
"""

import ast
import builtins
import re
from collections.abc import Sequence

from sandbox_server.grading.variants.base import Edit, Source, Variant
from sandbox_server.grading.variants.borrowing import draws
from sandbox_server.grading.variants.exceptions import another
from sandbox_server.grading.variants.expected import tail

_PYTEST = re.compile(rb"^import pytest$", re.MULTILINE)
_RAISES = re.compile(rb"^from [\w.]*pytest import .*\braises\b", re.MULTILINE)
_METHODS = re.compile(r"assert[A-Z]\w*")
_APART = ast.BoolOp | ast.IfExp | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
"""What is within these may not be called by the true test, or needs names that are not known outside of them."""


def refusal(source: Source, statement: ast.stmt, stated: Sequence[ast.expr]) -> tuple[Variant, ...]:
    """The variant of `statement`, which asserts `stated`; () if it calls nothing, or the file cannot say `raises`."""
    called = _called(stated)
    if called is None:
        return ()
    text, kind = source.segment(called), another("", warning=False, nth=draws(source, called))
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=name))) if _METHODS.fullmatch(name):
            text = f"with {source.segment(owner)}.assertRaises({kind}): {text}"
        case ast.Assert() if source.once(_has_pytest):
            text = f"with pytest.raises({kind}): {text}"
        case ast.Assert() if source.once(_has_raises) and isinstance(called, ast.Call):
            text = f"raises({kind}, lambda: {text})"
        case _:
            return ()
    start, end = source.start(statement), source.end(statement)
    text += "\n" * (source.text.count(b"\n", start, end) - text.count("\n"))  # the lines below stay where they are
    return (Variant("refusal", (Edit(start, end, text),)),)


def _has_pytest(source: Source) -> bool:
    return _PYTEST.search(source.text) is not None


def _has_raises(source: Source) -> bool:
    return _RAISES.search(source.text) is not None


def _called(stated: Sequence[ast.expr]) -> ast.expr | None:
    """The outermost call in them that is no built-in function's."""
    both = [one.values if isinstance(one, ast.BoolOp) and isinstance(one.op, ast.And) else [one] for one in stated]
    parts = [part for some in both for part in some]
    for part in parts:
        if isinstance(part, ast.Await) or (
            isinstance(part, ast.Call) and not hasattr(builtins, tail(part.func) or "len")
        ):
            return part
        if not isinstance(part, _APART):
            parts += [inner for inner in ast.iter_child_nodes(part) if isinstance(inner, ast.expr)]
    return None
