"""Finds the row's tests in the files, by names of pytest, unittest, Django (docstrings) and sympy (bare names)."""

import ast
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from sandbox_server.grading.variants.base import Source
from sandbox_server.grading.variants.expected import Function, tail

_UNITTEST = re.compile(r"(\w+) \(([\w.]+)\)")
_BARE = re.compile(r"\w+")
_FUNCTION = re.compile(r"(?:[^\[]*::)?(\w+)")
_EXPANDED = re.compile(r"(\w+?)_\d+(?:_\w*)?")
"""Names of `parameterized` and `ddt`: `test_days_0_leap`."""
_OF_TESTS = re.compile(r"(?:^|[/_])(?:tests?|testing|conftest)(?:[/_.]|$)")
"""A path of test code. Assertions in product code state no expectation of a test."""


@dataclass(slots=True)
class FoundTest:
    """A test function and the row's tests that it implements."""

    source: Source
    function: Function
    owner: str
    """Class of the function, nested classes joined by dots; "" for a function of the module."""
    fixed: list[str] = field(default_factory=list)
    """Names of its tests in F2P."""
    kept: list[str] = field(default_factory=list)
    """Names of its tests in P2P."""

    @property
    def name(self) -> str:
        """Name within the file."""
        return f"{self.owner}.{self.function.name}" if self.owner else self.function.name


def functions(source: Source) -> list[FoundTest]:
    """All functions and methods that look like tests."""
    return [found for found in defined(source) if _is_test(found.function.name)]


def defined(source: Source) -> list[FoundTest]:
    """All functions and methods; of two with the same name the last one, which is the one that runs."""
    found = {
        (owner, function.name): FoundTest(source, function, owner) for owner, function in _defined(source.tree.body)
    }
    return list(found.values())


def _is_test(name: str) -> bool:
    return name.startswith("test") or name.endswith("_test")


def _defined(body: Iterable[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield owner, statement
            case ast.ClassDef():
                yield from _defined(statement.body, f"{owner}.{statement.name}" if owner else statement.name)
            case ast.If() | ast.Try() | ast.With():
                yield from _defined(statement.body, owner)
                if not isinstance(statement, ast.With):
                    yield from _defined(statement.orelse, owner)
            case _:
                continue


def _classes(body: Iterable[ast.stmt], owner: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each class, nested ones joined by dots, with the names of its bases."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{owner}.{statement.name}" if owner else statement.name
            yield name, [tail(base) for base in statement.bases]
            yield from _classes(statement.body, name)


def find(sources: Iterable[Source], fixed: Iterable[str], kept: Iterable[str]) -> list[FoundTest]:
    """The functions that implement tests in `fixed`, together with their tests in `kept`."""
    fixed, kept = list(fixed), list(kept)
    named = {match[1] for name in (*fixed, *kept) if (match := _FUNCTION.match(name))}
    index = _Index(list(sources), named)
    for name in kept:
        for found in index.of(name):
            found.kept.append(name)
    hit: dict[int, FoundTest] = {}
    for name in fixed:
        there = index.of(name)
        if len(there) == 1:  # with two candidates it is unknown which one runs
            there[0].fixed.append(name)
            hit[id(there[0])] = there[0]
    return list(hit.values())


def inherited_from(files: Mapping[str, bytes], fixed: Sequence[str]) -> list[str]:
    """Paths of modules that classes in `files` import bases from and may inherit tests in `fixed` from."""
    sources = [
        source for path, text in sorted(files.items()) if path.endswith(".py") and (source := Source.of(path, text))
    ]
    index = _Index(sources, {match[1] for name in fixed if (match := _FUNCTION.match(name))})
    owners = {owner for name in fixed if not index.of(name) and (owner := _owner(name))}
    found = [path for source in sources for path in _bases_of(source, owners)] if owners else []
    return sorted(set(found) - files.keys())


def _owner(name: str) -> str:
    """The class in a test's name; "" if the name has none."""
    if (match := _UNITTEST.fullmatch(name)) is not None:
        parts = match[2].split(".")
        return parts[-2] if len(parts) > 1 and parts[-1] == match[1] else parts[-1]
    return ".".join(name.partition("[")[0].split("::")[1:-1])


def helper_paths(source: Source) -> list[str]:
    """Paths of the test files from which `source` may import functions or base classes.

    These matter because `check(f(2), 4)` states an expectation if a `def check(result, expected)` asserts it.
    """
    found: list[str] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found += (path for name in node.names for path in _paths(source, 0, name.name))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{name.name}".lstrip(".") for name in node.names)]
            found += (path for name in names for path in _paths(source, node.level, name))
    return [path for path in dict.fromkeys(found) if _OF_TESTS.search(path) and path != source.path]


def _imported(source: Source, names: Set[str]) -> Iterator[str]:
    """Paths of the modules that these names may be imported from."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and any((name.asname or name.name) in names for name in node.names):
            yield from _paths(source, node.level, node.module or "")


def _paths(source: Source, level: int, module: str) -> Iterator[str]:
    here = posixpath.dirname(source.path)
    for top in ["/".join([here, *[".."] * (level - 1)])] if level else ["", here]:
        stem = posixpath.normpath(posixpath.join(top, *module.split(".")))
        yield from (f"{stem}.py", f"{stem}/__init__.py")


def _bases_of(source: Source, owners: Set[str]) -> Iterator[str]:
    classes = dict(_classes(source.tree.body))
    bases, waiting = set[str](), [owner for owner in owners if owner in classes]
    while waiting:
        above = [base for base in classes.pop(waiting.pop(), ()) if base not in bases]
        bases.update(above)
        waiting += above
    yield from _imported(source, bases)


class _Index:
    """Finds functions by the names that runners use."""

    def __init__(self, sources: Sequence[Source], named: Set[str]) -> None:
        """`named`: names of the row's tests, which need not look like tests (pytest's `python_functions`)."""
        by_name: dict[str, list[FoundTest]] = {}
        by_doc: dict[str, list[FoundTest]] = {}
        for one in (found for source in sources for found in defined(source)):
            if not _is_test(one.function.name) and one.function.name not in named:
                continue
            by_name.setdefault(one.function.name, []).append(one)
            first = (ast.get_docstring(one.function) or "").strip().split("\n")[0].strip()
            if first:
                by_doc.setdefault(first, []).append(one)
        self._by_name: Mapping[str, list[FoundTest]] = by_name
        self._by_doc: Mapping[str, list[FoundTest]] = by_doc
        self._bases = {(source.path, owner): bases for source in sources for owner, bases in _classes(source.tree.body)}
        self._paths: dict[str, list[str]] = {}
        for path, owner in self._bases:
            self._paths.setdefault(owner, []).append(path)

    def of(self, name: str) -> list[FoundTest]:
        """The functions that `name` may refer to."""
        if (match := _UNITTEST.fullmatch(name)) is not None:
            return self._of_unittest(*match.groups())
        head = name.partition("[")[0]
        if "::" in head:
            path, *owners, function = head.split("::")
            return self._of_class(function, ".".join(owners), lambda there: _same_path(there, path))
        if _BARE.fullmatch(head):
            return self._by_name.get(head, [])
        return self._by_doc.get(name.strip(), [])

    def _of_unittest(self, function: str, dotted: str) -> list[FoundTest]:
        parts = dotted.split(".")
        if len(parts) > 1 and parts[-1] == function:
            parts = parts[:-1]
        module, owner = parts[:-1], parts[-1]
        return self._of_class(function, owner, lambda there: _is_module(there, module))

    def _of_class(self, function: str, owner: str, lies_in: Callable[[str], bool]) -> list[FoundTest]:
        """Methods called `function` of the class, else of its nearest base that has one; without a class, functions."""
        named = self._by_name.get(function) or self._expanded(function)
        near = [(path, owner) for path in self._paths.get(owner, ()) if lies_in(path)]
        if not near:
            return [found for found in named if found.owner == owner and lies_in(found.source.path)]
        seen = set[tuple[str, str]]()
        while near:
            if there := [found for found in named if (found.source.path, found.owner) in near]:
                return there
            seen.update(near)
            near = list(dict.fromkeys(above for one in near for above in self._above(*one) if above not in seen))
        return []

    def _above(self, path: str, owner: str) -> Iterator[tuple[str, str]]:
        """(path, name) of the bases of a class, in its own file or else imported."""
        for base in self._bases[path, owner]:
            paths = self._paths.get(base, ())
            yield from [(path, base)] if path in paths else [(there, base) for there in paths]

    def _expanded(self, function: str) -> list[FoundTest]:
        """Decorated functions from which `function` may be generated: one for each row, with a number at its end."""
        match = _EXPANDED.fullmatch(function)
        return [found for found in self._by_name.get(match[1], ()) if found.function.decorator_list] if match else []


def _same_path(path: str, named: str) -> bool:
    path, named = posixpath.normpath(path), posixpath.normpath(named)
    return path == named or path.endswith(f"/{named}") or named.endswith(f"/{path}")


def _is_module(path: str, module: list[str]) -> bool:
    stem = posixpath.normpath(path).removesuffix(".py").split("/")
    if stem[-1] == "__init__":
        stem = stem[:-1]
    return stem[len(stem) - len(module) :] == module
