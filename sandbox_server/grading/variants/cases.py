"""The cases of a parametrized test, and the names by which pytest runs them."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server.grading.variants.base import Edit, Source
from sandbox_server.grading.variants.expected import Function, bound, tail


@dataclass(frozen=True, slots=True)
class Case:
    """One row of one `parametrize`."""

    values: Mapping[str, ast.expr]
    """Parameter -> value."""
    shown: frozenset[str]
    """Parameters whose value is part of the case's name; changing the value would change the name."""
    pattern: str
    """Regular expression that matches the case's part of the test name."""
    row: ast.expr
    """The row in the source."""
    named: bool
    """Whether the case has an explicit id."""


Table = tuple[Case, ...]


def tables(source: Source, function: Function) -> list[Table]:
    """The tables of the function's `parametrize` decorators, in the order they form a name; [] if unreadable."""
    found = [_table(decorator, rows_of(source, decorator)) for decorator in reversed(_parametrizing(function))]
    return found if all(found) else []


def _parametrizing(function: Function) -> list[ast.Call]:
    return [
        decorator
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and tail(decorator.func) == "parametrize"
    ]


def rows_of(source: Source, decorator: ast.Call) -> ast.expr | None:
    """The rows of a `parametrize`: given in it, or by a name that nothing else in the file reads."""
    rows = decorator.args[1] if len(decorator.args) > 1 else None
    return source.once(_read_once).get(rows.id) if isinstance(rows, ast.Name) else rows


def named_rows(source: Source, function: Function) -> list[ast.expr]:
    """The rows of the function's `parametrize` decorators that are given by a name."""
    found = ((decorator, rows_of(source, decorator)) for decorator in _parametrizing(function))
    return [rows for decorator, rows in found if rows is not None and rows is not decorator.args[1]]


def _read_once(source: Source) -> Mapping[str, ast.expr]:
    """Names of the module that are bound once and read once, with their values."""
    used = Counter(
        (node.id, type(node.ctx) is ast.Load) for node in ast.walk(source.tree) if isinstance(node, ast.Name)
    )
    return {
        name: values[0]
        for statement in source.tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for name, values in bound(statement)
        if used[name, True] == used[name, False] == 1
    }


def parameters(found: Sequence[Table]) -> dict[str, object]:
    """Parameters that the cases set."""
    return {name: None for table in found for case in table for name in case.values}


def tests_of(found: Sequence[Table], at: int, case: Case, names: Mapping[str, str]) -> list[str]:
    """The tests in `names` (test name -> text in its brackets) that run only `case` of table `at`."""
    parts = [f"(?:{'|'.join(row.pattern for row in table)})" for table in found]

    def matches(row: Case, name: str) -> bool:
        if is_cut(name):
            pattern, blank, _ = row.pattern.partition(re.escape(" "))
            return bool(blank) and len(found) == 1 and re.fullmatch(pattern, names[name], re.DOTALL) is not None
        pattern = "-".join([*parts[:at], row.pattern, *parts[at + 1 :]])
        return re.fullmatch(pattern, names[name], re.DOTALL) is not None

    return [
        name
        for name in names
        if matches(case, name) and not any(matches(row, name) for row in found[at] if row is not case)
    ]


def is_cut(name: str) -> bool:
    """Whether a name has no closing bracket: log parsers end a name at the first blank, also within a case's id."""
    return "[" in name and not name.endswith("]")


def renamed(found: Sequence[Table], at: int, case: Case, test: str, word: str) -> str:
    """The name that `test`, which is one of `tests_of`, has once the case gets the id `word`."""
    parts = [f"(?:{'|'.join(row.pattern for row in table)})" for table in found]
    head, _, rest = test.partition("[")
    match = re.fullmatch("-".join([*parts[:at], f"({case.pattern})", *parts[at + 1 :]]), rest[:-1], re.DOTALL)
    assert match is not None  # since it is one of `tests_of`
    return f"{head}[{rest[: match.start(1)]}{word}{rest[match.end(1) :]}"


def labelled(source: Source, case: Case, word: str) -> tuple[Edit, ...]:
    """Edits that give a case the id `word`; () if that is impossible."""
    if case.named or b"import pytest" not in source.text:
        return ()
    start, end = source.start(case.row), source.end(case.row)
    comma = b"" if source.text[start : end - 1].rstrip().endswith(b",") else b", "
    given = f'{comma.decode()}id="{word}")'
    if isinstance(case.row, ast.Call):
        return (Edit(end - 1, end, given),)
    if isinstance(case.row, ast.Tuple | ast.List) and len(case.values) > 1:
        return (Edit(start, start + 1, "pytest.param("), Edit(end - 1, end, given))
    return ()


def _table(decorator: ast.Call, listed: ast.expr | None) -> Table:
    if not isinstance(listed, ast.List | ast.Tuple):
        return ()
    names = _names(decorator.args[0])
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    if not names or keywords.keys() - {"ids"}:
        return ()
    ids = keywords.get("ids")
    if ids is not None and not isinstance(ids, ast.List | ast.Tuple):
        return ()  # a function that computes ids
    rows = [_case(names, row, at, ids) for at, row in enumerate(listed.elts)]
    return tuple(row for row in rows if row) if all(rows) else ()


def _names(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    if isinstance(node, ast.List | ast.Tuple):
        return [str(name.value) for name in node.elts if isinstance(name, ast.Constant)]
    return []


def _case(names: Sequence[str], row: ast.expr, at: int, ids: ast.List | ast.Tuple | None) -> Case | None:
    own: ast.expr | None = None
    if ids is not None:
        own = ids.elts[at] if at < len(ids.elts) else None
        if not isinstance(own, ast.Constant):
            return None
    values: Sequence[ast.expr] = [row]
    if isinstance(row, ast.Call) and tail(row.func) == "param":
        values = row.args
        own = next((keyword.value for keyword in row.keywords if keyword.arg == "id"), own)
    elif len(names) > 1:
        if not isinstance(row, ast.List | ast.Tuple):
            return None
        values = row.elts
    if len(values) != len(names):
        return None
    by_name = dict(zip(names, values, strict=True))
    if isinstance(own, ast.Constant) and isinstance(own.value, str):
        return Case(by_name, frozenset(), re.escape(_ascii(own.value)), row, named=True)
    parts = [_part(name, value, at) for name, value in by_name.items()]
    shown = frozenset(name for name, value in by_name.items() if not _is_numbered(value))
    return Case(by_name, shown, "-".join(parts), row, named=False)


def _is_numbered(value: ast.expr) -> bool:
    """Whether pytest names the value by parameter and position, whatever it holds."""
    return isinstance(value, ast.List | ast.Tuple | ast.Dict | ast.Set | ast.ListComp)


def _part(name: str, value: ast.expr, at: int) -> str:
    if _is_numbered(value):
        return re.escape(f"{name}{at}")
    try:
        known = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ".*"  # an object, shown by name or number
    if isinstance(known, bytes):
        return ".*"
    return re.escape(_ascii(str(known)))


def _ascii(text: str) -> str:
    """`text` as pytest shows it, with non-printable and non-ASCII characters escaped; some logs escape twice."""
    return text.encode("unicode_escape").decode("ascii")


def bracketed(names: Iterable[str]) -> dict[str, str]:
    """Name -> text in its brackets, up to its first blank if `is_cut`; names without brackets are left out."""
    found = {}
    for name in names:
        head, bracket, rest = name.partition("[")
        if bracket and head:
            found[name] = rest.removesuffix("]")
    return found
