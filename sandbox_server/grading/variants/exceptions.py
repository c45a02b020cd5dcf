"""Replaces an expected exception by one that no honest implementation raises instead.

The replacements are near the leaves of Python's class tree: code may raise a class derived from both ValueError and
LookupError, but hardly one derived from these. They are common in tests, so that they are not conspicuous.
"""

import ast
import builtins

_NAMES = (
    "OverflowError ZeroDivisionError PermissionError FileExistsError RuntimeError UnicodeDecodeError ImportError "
    "TimeoutError NotImplementedError RecursionError"
)
_ERRORS = tuple(_NAMES.split())
_ROOTS = frozenset({"Exception", "BaseException", "Warning", "Error"})
_WARNINGS = ("BytesWarning", "ImportWarning", "UnicodeWarning")


def names_one(node: ast.expr) -> bool:
    """Whether `node` names a single class that is not a base of (nearly) all exceptions."""
    if isinstance(node, ast.Attribute | ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return name[:1].isupper() and name not in _ROOTS
    return False


def another(name: str, *, warning: bool, nth: int) -> str:
    """The `nth` exception unrelated to `name`, counted round and round."""
    known = getattr(builtins, name, None)
    kind = known if isinstance(known, type) and issubclass(known, BaseException) else None
    pool = _WARNINGS if warning else _ERRORS
    unrelated = [other for other in pool if kind is None or not _related(getattr(builtins, other), kind)]
    return unrelated[nth % len(unrelated)]


def _related(one: type[BaseException], other: type[BaseException]) -> bool:
    return issubclass(one, other) or issubclass(other, one)
