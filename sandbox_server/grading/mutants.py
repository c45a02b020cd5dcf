"""Mutants and stubs of Python source: small faults that good tests notice, and functions that do nothing. Pure."""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from random import Random

_OTHER_OPERATOR: Mapping[str, str] = {
    "Eq": "!=",
    "NotEq": "==",
    "Lt": "<=",
    "LtE": "<",
    "Gt": ">=",
    "GtE": ">",
    "In": "not in",
    "NotIn": "in",
    "Is": "is not",
    "IsNot": "is",
    "And": "or",
    "Or": "and",
    "Add": "-",
    "Sub": "+",
    "Mult": "+",
    "Div": "*",
    "FloorDiv": "/",
    "Mod": "*",
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_RAISED = 2  # exceptions that the fixed function raises, tried in stubs besides ValueError


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file with one fault."""

    line: int
    what: str
    """`before -> after`."""
    text: bytes


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    new: str
    line: int


def mutants(text: bytes, lines: Collection[int], *, most: int, seed: str) -> list[Mutant]:
    """Up to `most` mutants with one fault each on these lines; the same `seed` gives the same mutants."""
    tree = _tree(text)
    if tree is None:
        return []
    offsets = _offsets(text)
    edits = sorted(set(_edits(tree, offsets, set(lines))), key=lambda edit: (edit.start, edit.end, edit.new))
    Random(seed).shuffle(edits)
    made: list[Mutant] = []
    for edit in edits:
        if len(made) == most:
            break
        changed = text[: edit.start] + edit.new.encode() + text[edit.end :]
        if _tree(changed) is not None:
            before = text[edit.start : edit.end].decode(errors="replace")
            made.append(Mutant(edit.line, f"{_short(before)} -> {_short(edit.new)}", changed))
    return made


def stubs(base: bytes, gold: bytes, old: Collection[int], new: Collection[int]) -> dict[str, bytes]:
    """Stub body -> the unpatched file, in which every function that gold changes or adds has only that body.

    `old` and `new` are the lines that gold removes from `base` and adds in `gold`. Methods that gold adds are left out,
    and so is everything it does outside of functions: a stub must contain nothing of the fix.
    """
    trees = _tree(base), _tree(gold)
    if trees[0] is None or trees[1] is None:
        return {}
    before, after = _functions(trees[0]), _functions(trees[1])
    touched = [name for name, node in after.items() if _touched(node, new)]
    touched += [name for name, node in before.items() if _touched(node, old) and name not in touched]
    chosen = [before[name] for name in touched if name in before]
    added = [name for name in touched if name not in before and "." not in name]
    if not chosen and not added:
        return {}
    raised = [name for function in touched if function in after for name in _raised(after[function])]
    kinds = ["ValueError", *list(dict.fromkeys(raised))[:_MOST_RAISED]]
    offsets = _offsets(base)
    found = {}
    for body in dict.fromkeys(["return None", *(f"raise {name}" for name in kinds)]):
        changed = base
        for node in sorted(chosen, key=lambda node: -node.lineno):
            start, end = _span(node.body[0], offsets)[0], _span(node, offsets)[1]
            changed = changed[:start] + body.encode() + changed[end:]
        changed += "".join(f"\n\ndef {name}(*args, **kwargs):\n    {body}\n" for name in added).encode()
        if _tree(changed) is not None:
            found[body] = changed
    return found


def _functions(tree: ast.Module) -> dict[str, _Function]:
    """Functions of the module and methods of its classes, by qualified name."""
    found: dict[str, _Function] = {}
    scopes: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    while scopes:
        prefix, body = scopes.pop()
        for node in body:
            if isinstance(node, _Function):
                found[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                scopes.append((f"{prefix}{node.name}.", node.body))
    return found


def _tree(text: bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _offsets(text: bytes) -> list[int]:
    """Byte offset of each line, with lines counted as `ast` does."""
    found = [0]
    for line in text.splitlines(keepends=True):
        found.append(found[-1] + len(line))
    return found


def _span(node: ast.stmt | ast.expr, offsets: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None  # always set by `ast.parse`
    return offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset


def _edits(tree: ast.Module, offsets: list[int], lines: set[int]) -> Iterator[_Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno in lines:
            yield from _edits_of_expression(node, offsets)
        elif isinstance(node, ast.stmt) and node.lineno in lines:
            yield from _edits_of_statement(node, offsets)


def _edits_of_expression(node: ast.expr, offsets: list[int]) -> Iterator[_Edit]:
    start, end = _span(node, offsets)
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) | ast.BinOp(left=left, op=op, right=right):
            between = _span(left, offsets)[1], _span(right, offsets)[0]
        case ast.BoolOp(op=op, values=[left, right]):
            between = _span(left, offsets)[1], _span(right, offsets)[0]
        case ast.Constant(value=bool() as value):
            yield _Edit(start, end, str(not value), node.lineno)
            return
        case ast.Constant(value=int() as value):
            yield _Edit(start, end, str(value + 1), node.lineno)
            return
        case _:
            return
    if new := _OTHER_OPERATOR.get(_name(op)):
        yield _Edit(*between, f" {new} ", node.lineno)


def _edits_of_statement(node: ast.stmt, offsets: list[int]) -> Iterator[_Edit]:
    start, end = _span(node, offsets)
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield _Edit(*_span(test, offsets), f"not ({ast.unparse(test)})", node.lineno)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield _Edit(start, end, "return None", node.lineno)
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield _Edit(start, end, "pass", node.lineno)


def _name(op: ast.AST) -> str:
    return type(op).__name__


def _first_line(node: _Function) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _touched(node: _Function, lines: Collection[int]) -> bool:
    return any(_first_line(node) <= line <= (node.end_lineno or 0) for line in lines)


def _raised(function: _Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and node.exc is not None:
            what = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(what, ast.Name | ast.Attribute):
                yield ast.unparse(what)


def _short(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= 60 else said[:57] + "..."
