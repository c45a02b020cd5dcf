"""Modules and entities: the numbered cases of the specification's table E, and cases that it leaves open."""

import pytest

from sandbox_server.catalogue.localization.extract import truth_of

from .samples import M_PY, NEW, P1, diff, stored


def levels(old: str, new: str, *, path: str = "p/m.py") -> tuple[str, str]:
    """Modules and entities without their path, joined."""
    truth = stored(truth_of(diff(path, old, new), {path: old.encode()}.get))
    assert truth.missing == {}
    assert truth.files == (path,)
    assert truth.modules is not None
    assert truth.entities is not None
    assert all(name.startswith(f"{path}:") for name in (*truth.modules, *truth.entities))
    bare = [" ".join(name.removeprefix(f"{path}:") for name in names) for names in (truth.modules, truth.entities)]
    return bare[0], bare[1]


def edited(old: str, new: str) -> tuple[str, str]:
    """Levels of an edit of the fixture that replaces its only `old` by `new`."""
    assert M_PY.count(old) == 1, old
    return levels(M_PY, M_PY.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("other(self, a):\n        return a", "other(self, a):\n        return -a", ("Bar", "Bar.other")),
        ("def other(self, a)", "def other(self, a, b)", ("Bar", "Bar.other")),
        ("self.x = 1", "self.x = 2", ("Foo", "Foo.__init__")),
        ("return 2", "return 3", ("Foo", "Foo.run")),
        ("async def arun(a):\n    return a", "async def arun(a):\n    return -a", ("arun", "arun")),
        ("return a + LIMIT", "return a - LIMIT", ("helper", "helper")),
    ],
)
def test_e52_bodies_and_signatures(old: str, new: str, expected: tuple[str, str]) -> None:
    assert edited(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("@property", "@cached_property", ("Foo", "Foo.prop")),
        ("    attr = 1", "    attr = 2", ("Foo", "")),
        ("class Bar(Foo)", "class Bar(Foo, object)", ("Bar", "")),
    ],
)
def test_e53_decorator_attribute_and_base_list(old: str, new: str, expected: tuple[str, str]) -> None:
    assert edited(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import os\n", "import os\nimport sys\n"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("    # how\n", "    # how it is done\n"),
        ("What Foo is.", "What Foo is not."),
        ("LIMIT\n\n\nclass Foo", "LIMIT\n\n\n\nclass Foo"),
        ("self.x = 1\n\n", "self.x = 1\n\n\n"),
    ],
)
def test_e55_file_only(old: str, new: str) -> None:
    assert edited(old, new) == ("", "")


def test_e56_deletions() -> None:
    assert edited("    @property\n    def prop(self):\n        return self.x\n\n", "") == ("Foo", "Foo.prop")
    assert edited("def helper(a):\n    # how\n    return a + LIMIT\n", "") == ("helper", "helper")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("class Bar(Foo):\n", "class Bar(Foo):\n    def new(self):\n        return 1\n\n", ("Bar", "")),
        ("def run(a)", "def new(a):\n    return 1\n\n\ndef run(a)", ("", "")),
        ("class Bar", "class New:\n    def f(self):\n        return 1\n\n\nclass Bar", ("", "")),
        ("def helper(a)", "def assistant(a)", ("helper", "helper")),
    ],
)
def test_e57_what_is_new_is_not_to_be_found(old: str, new: str, expected: tuple[str, str]) -> None:
    """Its class is, if it existed before; renaming a function is an edit of the old one."""
    assert edited(old, new) == expected


def test_e58_function_with_the_name_of_a_method() -> None:
    assert edited("def run(a):\n    return a", "def run(a):\n    return -a") == ("run", "run")


def test_e60_edit_beside_a_new_file() -> None:
    patch = diff("p/m.py", M_PY, M_PY.replace("self.x = 1", "self.x = 2")) + NEW
    truth = truth_of(patch, {"p/m.py": M_PY.encode()}.get)
    assert (truth.files, truth.entities) == (("p/m.py",), ("p/m.py:Foo.__init__",))
    assert truth.added_files == ("src/new.py",)


def test_e62_rename_with_edit() -> None:
    patch = diff(
        "p/m.py",
        M_PY,
        M_PY.replace("other(self, a):\n        return a", "other(self, a):\n        return 1"),
        to="p/k.py",
    )
    truth = truth_of(patch, {"p/m.py": M_PY.encode()}.get)
    assert (truth.files, truth.modules, truth.entities) == (("p/m.py",), ("p/m.py:Bar",), ("p/m.py:Bar.other",))
    assert truth.added_files == ("p/k.py",)


def test_e63_python_2() -> None:
    old = "def f():\n    print 'a'\n"
    patch = diff("p/two.py", old, old.replace("'a'", "'b'")) + diff(
        "p/m.py", M_PY, M_PY.replace("attr = 1", "attr = 2")
    )
    truth = stored(truth_of(patch, {"p/two.py": old.encode(), "p/m.py": M_PY.encode()}.get))
    assert truth.files == ("p/m.py", "p/two.py")
    assert (truth.modules, truth.entities) == (None, None), "a part of a level would cost a right answer its precision"
    assert "no Python 3" in truth.missing["p/two.py"]
    assert truth.missing["modules"].startswith("p/two.py: no Python 3")
    assert "p/m.py" not in truth.missing


def test_e42_no_level_without_a_name() -> None:
    """Known but empty levels differ from unknown levels."""
    assert truth_of(diff("README.md", "a\n", "b\n")).entities == ()
    truth = truth_of(P1)
    assert truth.entities is None
    assert truth.missing["entities"] == "src/a.py: the tree of the base commit is not there"


def test_e_deleted_file() -> None:
    patch = (
        diff("p/m.py", M_PY, "")
        .replace("--- a", "deleted file mode 100644\n--- a")
        .replace("+++ b/p/m.py", "+++ /dev/null")
    )
    truth = truth_of(patch, {"p/m.py": M_PY.encode()}.get)
    assert truth.modules == tuple(f"p/m.py:{name}" for name in ("Bar", "Foo", "arun", "helper", "run"))
    assert truth.entities is not None
    assert len(truth.entities) == 7


NESTED = '''\
class Outer:
    class Inner:
        flag = 1

        def method(self):
            return 1

    def maker(self):
        class Local:
            def deep(self):
                return 2

        return Local


try:
    import fast
except ImportError:
    fast = None

    def slow():
        return 3


if fast:
    def chosen():
        return 4
else:
    def chosen():
        return 5


class Guarded:
    if fast:
        def late(self):
            return 6

    @overload
    def over(self, a: int) -> int: ...
    @overload
    def over(self, a: str) -> str: ...
    def over(self, a):
        return 7


def text():
    return """
# no comment
8
"""
'''


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("return 1", "return 0", ("Outer.Inner", "Outer.Inner.method")),
        ("flag = 1", "flag = 0", ("Outer.Inner", "")),
        ("return 2", "return 0", ("Outer", "Outer.maker")),
        ("return 3", "return 0", ("slow", "slow")),
        ("return 4", "return 0", ("chosen", "chosen")),
        ("return 5", "return 0", ("chosen", "chosen")),
        ("return 6", "return 0", ("Guarded", "Guarded.late")),
        ("    if fast:\n        def late", "    if not fast:\n        def late", ("Guarded", "")),
        ("if fast:\n    def chosen", "if not fast:\n    def chosen", ("", "")),
        ("a: str) -> str", "a: bytes) -> str", ("Guarded", "Guarded.over")),
        ("return 7", "return 0", ("Guarded", "Guarded.over")),
        ("# no comment", "# none at all", ("text", "text")),
    ],
)
def test_e_nested_conditional_and_overloaded(old: str, new: str, expected: tuple[str, str]) -> None:
    assert NESTED.count(old) == 1, old
    assert levels(NESTED, NESTED.replace(old, new)) == expected


def test_e_source_with_crlf_latin1_and_a_lone_return() -> None:
    """Python would count a line at the lone return, the diff does not."""
    old = "# coding: latin-1\r\nA = '\xe9'  # a\rb\r\n\r\ndef f():\r\n    return 1\r\n".encode("latin-1")
    patch = "--- a/x.py\n+++ b/x.py\n@@ -4,2 +4,2 @@\n def f():\r\n-    return 1\r\n+    return 2\r\n"
    truth = truth_of(patch, {"x.py": old}.get)
    assert (truth.entities, truth.missing) == (("x.py:f",), {})


def test_e_no_newline_at_the_end() -> None:
    patch = (
        "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n def f():\n-    return 1\n\\ No newline at end of file\n"
        "+    a = 1\n+    return a\n\\ No newline at end of file\n"
    )
    truth = truth_of(patch, {"x.py": b"def f():\n    return 1"}.get)
    assert (truth.entities, truth.lines, truth.missing) == (("x.py:f",), {"x.py": ((2, 2),)}, {})


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({}, "has no such file"),
        ({"p/m.py": M_PY.replace("attr = 1", "attr = 5").encode()}, "line 14 is not what the patch says"),
        ({"p/m.py": b"import os\n"}, "the file ends with line 1"),
        ({"p/m.py": b"\0" * 3 + M_PY.encode()}, ""),
    ],
)
def test_e_another_tree_is_told(tree: dict[str, bytes], said: str) -> None:
    """A wrong base commit must not give a truth that looks right."""
    truth = truth_of(diff("p/m.py", M_PY, M_PY.replace("attr = 1", "attr = 2")), tree.get)
    assert truth.files == ("p/m.py",)
    assert truth.entities is None
    assert said in truth.missing["p/m.py"]


def test_e_the_patch_breaks_the_file() -> None:
    truth = truth_of(diff("p/m.py", M_PY, M_PY.replace("attr = 1", "attr = (")), {"p/m.py": M_PY.encode()}.get)
    assert truth.files == ("p/m.py",)
    assert truth.modules is None
    assert "no Python 3" in truth.missing["p/m.py"]


def test_e_source_that_nothing_reads() -> None:
    truth = truth_of(diff("x.cpp", "a\n", "b\n"), {"x.cpp": b"a\n"}.get)
    assert (truth.files, truth.modules) == (("x.cpp",), None)
    assert truth.missing["x.cpp"] == "no reader for .cpp files"


def test_e_a_patch_some_lines_off_is_found() -> None:
    """SWE-Gym's dask__dask-8590 is such a row; `git apply` takes it."""
    patch = diff("p/m.py", M_PY, M_PY.replace("self.x = 1", "self.x = 2").replace("return a + LIMIT", "return a"))
    grown = "# a\n# b\n" + M_PY.replace('is."""\n', 'is."""\n    # c\n')
    truth = truth_of(patch, {"p/m.py": grown.encode()}.get)
    assert (truth.entities, truth.missing) == (("p/m.py:Foo.__init__", "p/m.py:helper"), {})
    lines = grown.split("\n")
    assert [lines[first - 1].strip() for first, _ in truth.lines["p/m.py"]] == ["return a + LIMIT", "self.x = 1"]


def test_e_a_line_without_context_is_not_looked_for() -> None:
    patch = diff("p/m.py", M_PY, M_PY.replace("attr = 1", "attr = 2"), context=0)
    truth = truth_of(patch, {"p/m.py": b"# a\n" + M_PY.encode()}.get)
    assert "is not what the patch says" in truth.missing["p/m.py"]
