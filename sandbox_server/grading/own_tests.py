"""Finds the tests that a patch brings along in place of the row's, or where a log could not tell them apart. Pure.

A row's tests may be in the repository already, and in no test patch: a patch that empties them fixes nothing, or hides
what it has broken.
In Go, Rust, JavaScript, TypeScript, Java, PHP and Ruby logs name tests without their file. In Go a second test of the
same name in a package does not build; elsewhere the last line of that name counts, so a right fix with such a test of
its own would seem to pass the false tests of its confirming run.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence

from sandbox_server.catalogue.diff import FileSection

_TEST_FILE = re.compile(
    r"(?:.*/)?(?:[^/]+_test\.go|tests/[^/]+\.rs|src/test/(?:.*/)?[^/]*Tests?\.java|[^/]+[.-](?:test|spec)\.[cm]?[jt]sx?"
    r"|(?:__tests__|tests?)/[^/]+\.[cm]?[jt]sx?|[^/]+Test\.php|[^/]+_(?:spec|test)\.rb|test_[^/]+\.rb)"
)
"""A file that runners of these languages take for tests."""

_OF_TESTS = re.compile(r"(?:^|[/_])tests?(?:[/_.]|$)")
_TEST_MODULE = re.compile(r"(?:.*/)?(?:(?:unit)?test_\w+|\w+_tests?|tests?)\.py")
_IN_TEST_FOLDER = re.compile(r"((?:[^/]+/)*?(?:testing|(?:\w+_)?tests?)/)")
"""The outermost folder of tests that a path is in."""
_SHADOWS = ("/__init__.py", ".so", ".pyc")
"""How files end that Python imports in place of a module that lies beside them."""
_UNITTEST = re.compile(r"(test\w*) \(([\w.]+)\)")

# The text is a policy's, so nothing here is repeated without a bound.
_FUNCTION = re.compile(r"\b(?:func(?: \([^()\n]{0,200}\))?|fn|void) {1,8}(\w{1,200}) ?[(<]")
_TITLE = re.compile(
    r"""\b(?:it|test|specify|fit)(?:\.\w{1,20}){0,3}(?:\(\s{0,80}|[ ])(["'`])((?:\\.|(?!\1)[^\\\n]){1,300})\1""",
    re.ASCII,
)


def own_tests(
    sections: Sequence[FileSection], allowed: frozenset[str], fixed: Sequence[str], kept: Sequence[str]
) -> frozenset[str]:
    """Paths of the tests in `sections` to leave out; `allowed`: paths that are replaced.

    `fixed`, `kept`: names of F2P and P2P tests. Left out are the files that one of these names tells, files with a
    test named like one of `fixed`, and all new files of tests, unless a test file that was there, and stays, is changed
    too: it may need what is in them.
    """
    names = [*fixed, *filter(_is_of_tests, kept)]
    files = frozenset(map(posixpath.normpath, named_files(names)))
    # the tests may be run in a folder of the repository: their names begin there
    ends = {path for path in files if _OF_TESTS.search(path)} | {f"{name}.py" for name in _named_modules(names)}
    out = [
        section.paths
        for section in sections
        if files & section.paths or any(not ends.isdisjoint(_ends(path)) for path in section.paths)
    ]
    tests = [section for section in sections if any(map(_TEST_FILE.fullmatch, section.paths))]
    named = {section for section in tests if section.new - allowed and _has_one_of(section, fixed)}
    if any(section.old - allowed for section in tests if section not in named):
        out += [section.paths for section in named]
    else:
        out += [section.paths if section in named else section.created for section in tests]
    return frozenset[str]().union(*out) - allowed


def test_folders(names: Iterable[str], placed: Iterable[str], gold: frozenset[str]) -> tuple[str, ...]:
    """The folders, with a slash at their end, of the Python tests with these names and of the files `placed`.

    Without those in which gold changes something: part of the product is in them.
    """
    named = map(posixpath.normpath, named_files(filter(_is_of_tests, names)))
    files = {*named, *filter(_TEST_MODULE.fullmatch, placed)}
    folders = {match[1] for match in map(_IN_TEST_FOLDER.match, files) if match}
    return tuple(folder for folder in folders if not any(path.startswith(folder) for path in gold))


def changed_inside(
    sections: Iterable[FileSection], folders: tuple[str, ...], allowed: frozenset[str]
) -> frozenset[str]:
    """Paths of all `sections` inside `folders`, if one of them changes what was there.

    `allowed`: paths that are replaced. P2P tests are known to pass with the repository's helpers and data, so a fix
    needs no change of these, and one that breaks a test could hide it there. New files alone change nothing, and stay.
    """
    # a link may take the place of a whole folder
    inside = [
        section for section in sections if any(f"{path}/".startswith(folders) for path in section.paths - allowed)
    ]
    changes = any(section.old - allowed or any(path.endswith(_SHADOWS) for path in section.new) for section in inside)
    return frozenset().union(*(section.paths for section in inside)) - allowed if changes else frozenset()


def named_files(names: Iterable[str]) -> frozenset[str]:
    """The files of Python that hold the tests of these names, as far as the names tell (`tests/test_a.py::test_b`)."""
    split = (name.partition("::") for name in names)
    return frozenset(path for path, mark, _ in split if mark and path.endswith(".py"))


def _is_of_tests(name: str) -> bool:
    """Whether the file or module that the name tells is one of tests, which no fix must change.

    A product's file is named by its doctests (`calc/sums.py::calc.sums.add`) and by checks of its style
    (`calc/sums.py::FLAKE8`).
    """
    path, mark, test = name.partition("::")
    if not mark:
        return bool(_named_modules([name]))
    test = test.partition("[")[0].rpartition("::")[2]
    return bool(_OF_TESTS.search(path)) or (test.lower().startswith("test") and "." not in test)


def _named_modules(names: Iterable[str]) -> frozenset[str]:
    """The modules of tests, with slashes, that unittest's names tell: `test_a (forms.tests.Tests)`."""
    found = set()
    for match in filter(None, map(_UNITTEST.fullmatch, names)):
        parts = match[2].split(".")
        parts = parts[:-1] if parts[-1] == match[1] else parts
        found.add("/".join(parts[:-1]))
    return frozenset(filter(_OF_TESTS.search, found))


def _ends(path: str) -> Iterable[str]:
    """The path of a file of Python from each of its folders on; that of a package as if it were a module."""
    if path.endswith(".py"):
        parts = path.removesuffix("/__init__.py").split("/")
        parts[-1] = parts[-1].removesuffix(".py") + ".py"
        yield from ("/".join(parts[at:]) for at in range(len(parts)))


def _has_one_of(section: FileSection, fixed: Sequence[str]) -> bool:
    """Whether the lines that it adds have a test which a log could name like one of `fixed`."""
    path = min(section.new)
    hunks = section.text[section.hunks_at or 0 :]
    text = "\n".join(line[1:].decode(errors="replace") for line in hunks.split(b"\n") if line.startswith(b"+"))
    if path.endswith((".go", ".rs", ".java")):
        declared = frozenset(_FUNCTION.findall(text))
        return any(declared.intersection(_functions(name, path)) for name in fixed)
    titles = frozenset(re.sub(r"\\(.)", r"\1", title) for _, title in _TITLE.findall(text))
    return any(_ends_with_one(name.strip(), titles) for name in fixed)


def _functions(name: str, path: str) -> Sequence[str]:
    """The functions that could give a log a test of this name; () if it names another class than the file's."""
    if path.endswith(".go"):
        return [name.partition("/")[0]]
    if path.endswith(".rs"):
        return [name.rpartition("::")[2]]
    words = re.findall(r"\w+", name)
    return words if len(words) == 1 or posixpath.basename(path).removesuffix(".java") in words else ()


def _ends_with_one(name: str, titles: frozenset[str]) -> bool:
    return any(name[at:] in titles for at in range(len(name)) if not (at and name[at - 1].isalnum()))
