"""What a patch says must be found. Names bear the numbers of the cases of the specification."""

import difflib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.localization.extract import truth_of, truth_of_bug
from sandbox_server.catalogue.localization.truth import Truth

A_PY = "".join(f"line {number}\n" for number in range(1, 31))
P1 = """\
diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -10,7 +10,8 @@ line 9
 line 10
 line 11
 line 12
-line 13
+line 13 a
+line 13 b
 line 14
 line 15
 line 16
"""
NEW = """\
diff --git a/src/new.py b/src/new.py
new file mode 100644
index 0000000..2222222
--- /dev/null
+++ b/src/new.py
@@ -0,0 +1,2 @@
+a = 1
+b = 2
"""
DELETED = """\
diff --git a/src/old.py b/src/old.py
deleted file mode 100644
index 1111111..0000000
--- a/src/old.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a = 1
-b = 2
"""
RENAMED = """\
diff --git a/src/old.py b/src/new.py
similarity index 80%
rename from src/old.py
rename to src/new.py
index 1111111..2222222 100644
--- a/src/old.py
+++ b/src/new.py
@@ -1,3 +1,3 @@
 a = 1
-b = 2
+b = 3
 c = 3
"""
PURE_RENAME = """\
diff --git a/src/old.py b/src/new.py
similarity index 100%
rename from src/old.py
rename to src/new.py
"""
MODE = "diff --git a/run me.sh b/run me.sh\nold mode 100644\nnew mode 100755\n"
BINARY = """\
diff --git a/logo.png b/logo.png
index 1111111..2222222 100644
Binary files a/logo.png and b/logo.png differ
"""


def diff(path: str, old: str, new: str, *, to: str | None = None, context: int = 3) -> str:
    """As git writes it, for texts that end with a newline."""
    after = to or path
    head = f"diff --git a/{path} b/{after}\n" + (f"rename from {path}\nrename to {after}\n" if to else "")
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{after}", n=context
    )
    return head + "".join(lines)


def stored(truth: Truth) -> Truth:
    """Through JSON and back: what cannot be stored is no truth."""
    assert Truth.model_validate(json.loads(truth.model_dump_json())) == truth
    return truth


def test_a01_edit() -> None:
    truth = stored(truth_of(P1))
    assert truth.files == ("src/a.py",)
    assert truth.hunks == {"src/a.py": ((10, 7),)}
    assert truth.lines == {"src/a.py": ((13, 13),)}
    assert not truth.unanswerable


def test_a02_new_file_only_is_unanswerable() -> None:
    truth = stored(truth_of(NEW))
    assert (truth.files, truth.added_files, truth.unanswerable) == ((), ("src/new.py",), True)
    assert (truth.modules, truth.entities, truth.missing) == ((), (), {})


def test_a03_edit_and_delete() -> None:
    truth = stored(truth_of(P1 + DELETED))
    assert truth.files == ("src/a.py", "src/old.py")
    assert truth.hunks == {"src/a.py": ((10, 7),), "src/old.py": ((1, 2),)}
    assert truth.lines["src/old.py"] == ((1, 2),)


def test_a04_rename_with_edit() -> None:
    truth = stored(truth_of(RENAMED))
    assert truth.files == ("src/old.py",)
    assert truth.hunks == {"src/old.py": ((1, 3),)}
    assert truth.added_files == ("src/new.py",)


def test_a05_pure_rename() -> None:
    truth = stored(truth_of(PURE_RENAME, {}.get))
    assert (truth.files, truth.hunks, truth.lines) == (("src/old.py",), {}, {})
    assert (truth.modules, truth.entities) == ((), ())


def test_a06_mode_only_and_binary_are_skipped() -> None:
    truth = stored(truth_of(MODE + BINARY))
    assert (truth.files, truth.skipped, truth.unanswerable) == ((), ("logo.png", "run me.sh"), True)
    with_edit = truth_of(MODE + P1 + BINARY)
    assert (with_edit.files, with_edit.skipped) == (("src/a.py",), ("logo.png", "run me.sh"))


@pytest.mark.parametrize("body", ["GIT binary patch\nliteral 3\nKcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n", ""])
def test_a06_binary_patch_and_nothing_at_all(body: str) -> None:
    head = "diff --git a/x.bin b/x.bin\nindex 1111111..2222222 100644\n"
    assert truth_of(head + body).skipped == ("x.bin",)


def test_a06_submodule_is_no_file() -> None:
    patch = """\
diff --git a/vendor/lib b/vendor/lib
index 1111111..2222222 160000
--- a/vendor/lib
+++ b/vendor/lib
@@ -1 +1 @@
-Subproject commit 1111111111111111111111111111111111111111
+Subproject commit 2222222222222222222222222222222222222222
"""
    truth = truth_of(patch)
    assert (truth.files, truth.skipped, truth.unanswerable) == ((), ("vendor/lib",), True)


def test_a07_header_with_spaces() -> None:
    patch = "diff --git a/lib b/x.py b/lib b/x.py\n--- a/lib b/x.py\t\n+++ b/lib b/x.py\t\n@@ -1 +1 @@\n-a\n+b\n"
    assert truth_of(patch).files == ("lib b/x.py",)
    assert truth_of("diff --git a/lib b/x.py b/lib b/x.py\nold mode 100644\nnew mode 100755\n").skipped == (
        "lib b/x.py",
    )


def test_a08_quoted_and_non_ascii_names() -> None:
    patch = P1.replace("a/src/a.py", '"a/src/\\303\\251t\\303\\251 \\"x\\".py"')
    patch = patch.replace("b/src/a.py", '"b/src/\\303\\251t\\303\\251 \\"x\\".py"')
    assert truth_of(patch).files == ('src/été "x".py',)
    assert truth_of(P1.replace("src/a.py", "src/файл.py")).files == ("src/файл.py",)


def test_a08_name_that_is_no_utf8_can_be_stored() -> None:
    """Latin-1 bytes as git quotes them; half of a surrogate pair would break the database and parquet."""
    patch = P1.replace("a/src/a.py", '"a/caf\\351.py"').replace("b/src/a.py", '"b/caf\\351.py"')
    assert stored(truth_of(patch)).files == ("caf\ufffd.py",)


def test_a10_without_diff_git() -> None:
    truth = truth_of("--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert (truth.files, truth.hunks) == (("src/a.py",), {"src/a.py": ((1, 1),)})


@pytest.mark.parametrize(
    ("old", "new"), [("src/a.py", "src/a.py"), ("old/src/a.py", "new/src/a.py"), ("i/src/a.py", "w/src/a.py")]
)
def test_a10_without_prefix_or_with_another(old: str, new: str) -> None:
    """`git diff --no-prefix`, `diff -ru old new`, diff.mnemonicPrefix."""
    assert truth_of(f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n").files == ("src/a.py",)


def test_a11_timestamps() -> None:
    patch = (
        "--- a/src/a.py\t2024-01-01 00:00:00 +0000\n+++ b/src/a.py\t2024-01-02 00:00:00 +0000\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert truth_of(patch).files == ("src/a.py",)


def test_a13_crlf() -> None:
    truth = truth_of(P1.replace("\n", "\r\n"), {"src/a.py": A_PY.encode()}.get)
    assert (truth.files, truth.lines) == (("src/a.py",), {"src/a.py": ((13, 13),)})
    assert truth.missing["src/a.py"].startswith("no Python 3"), "the line ends themselves do not keep it from applying"


def test_a30_only_what_is_there_is_to_be_found() -> None:
    truth = truth_of(P1 + NEW)
    assert (truth.files, truth.added_files) == (("src/a.py",), ("src/new.py",))


def test_copy_is_neutral() -> None:
    patch = "diff --git a/a.py b/b.py\nsimilarity index 100%\ncopy from a.py\ncopy to b.py\n"
    truth = truth_of(patch)
    assert (truth.files, truth.added_files, truth.unanswerable) == ((), ("b.py",), True)


def test_new_file_instead_of_a_link() -> None:
    """Git writes a change of type as a deletion and a creation of the same path."""
    patch = DELETED + NEW.replace("new.py", "old.py")
    truth = truth_of(patch, {"src/old.py": b"a = 1\nb = 2\n"}.get)
    assert (truth.files, truth.added_files, truth.missing) == (("src/old.py",), (), {})


def test_blank_patch() -> None:
    assert truth_of(" \n") == Truth(modules=(), entities=(), unanswerable=True)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("no diff at all", "no file in it"),
        ("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "no path in a repository"),
        ("--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n", "shorter"),
        ("--- a/x\n+++ b/x\n@@ -9 +9 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+b\n", "begins before"),
        ("--- a/x\n+++ b/x\n@@ -0 +1 @@\n-a\n+b\n", "no file has a line 0"),
        ("diff --git a/x b/y\nrename from x\nrename to y\n--- a/z\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "disagree"),
    ],
)
def test_what_is_no_patch_says_why(patch: str, said: str) -> None:
    with pytest.raises(UnreadablePatch, match=said):
        truth_of(patch)


# table D, the lines


def spans(old: str, new: str, *, context: int = 3, tree: bool = True) -> tuple[tuple[int, int], ...]:
    patch = diff("a.txt", old, new, context=context)
    return truth_of(patch, {"a.txt": old.encode()}.get if tree else None).lines["a.txt"]


@pytest.mark.parametrize("context", [0, 3])
def test_d_lines_are_the_changed_ones_without_context(context: int) -> None:
    lines = A_PY.splitlines(keepends=True)
    replaced = "".join([*lines[:9], "new\n", *lines[19:]])
    assert spans(A_PY, replaced, context=context) == ((10, 19),)
    inserted = "".join([*lines[:9], "new\n", *lines[9:]])
    assert spans(A_PY, inserted, context=context) == ((9, 10),), "between 9 and 10"
    both = "".join([*lines[:4], "new\n", *lines[4:19], *lines[20:]])
    assert spans(A_PY, both, context=context) == ((4, 5), (20, 20))


@pytest.mark.parametrize("context", [0, 3])
def test_d_insertions_at_both_ends_name_lines_that_exist(context: int) -> None:
    assert spans(A_PY, "new\n" + A_PY, context=context) == ((1, 1),)
    assert spans(A_PY, A_PY + "new\n", context=context) == ((30, 30),)
    assert spans(A_PY, A_PY + "new\n", context=context, tree=False) == ((30, 31),), "where it ends is not known"


def test_d_nothing_to_point_at_in_an_empty_file() -> None:
    truth = truth_of(diff("a.txt", "", "new\n"), {"a.txt": b""}.get)
    assert (truth.files, truth.lines) == (("a.txt",), {})


def test_d49_hunk_range() -> None:
    assert truth_of(P1).hunks["src/a.py"] == ((10, 7),), "lines 10 to 16, no more"


# table E, modules and entities

M_PY = '''\
import os

LIMIT = 3


def helper(a):
    # how
    return a + LIMIT


class Foo:
    """What Foo is."""

    attr = 1

    def __init__(self):
        self.x = 1

    @property
    def prop(self):
        return self.x

    def run(self):
        def inner():
            return 2

        return inner()


class Bar(Foo):
    def other(self, a):
        return a


def run(a):
    return a


async def arun(a):
    return a
'''


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
    """Of the fixture with its one `old` made `new`."""
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
    """Its class is, where that is there before; a new name for an old function is an edit of the old one."""
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
    """Levels told and empty are another thing than levels that could not be told."""
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


# the patch puts the bug in: the agent sees its new side


def test_bug_truth_is_of_the_tree_with_the_bug() -> None:
    clean = M_PY
    buggy = M_PY.replace("        self.x = 1\n", "").replace("LIMIT = 3", "LIMIT = 3\nMORE = 4")
    truth = stored(truth_of_bug(diff("p/m.py", clean, buggy, context=0), {"p/m.py": clean.encode()}.get))
    fix = truth_of(diff("p/m.py", buggy, clean, context=0), {"p/m.py": buggy.encode()}.get)
    assert truth == fix
    assert truth.lines == {"p/m.py": ((4, 4), (17, 18))}


def test_bug_that_takes_things_away() -> None:
    """What is not in the tree with the bug cannot be found: its class can, a deleted file cannot."""
    buggy = M_PY.replace("    def other(self, a):\n        return a\n", "    pass\n")
    truth = truth_of_bug(
        diff("p/m.py", M_PY, buggy) + DELETED, {"p/m.py": M_PY.encode(), "src/old.py": b"a = 1\nb = 2\n"}.get
    )
    assert (truth.files, truth.modules, truth.entities) == (("p/m.py",), ("p/m.py:Bar",), ())
    assert (truth.added_files, truth.missing) == (("src/old.py",), {})


def test_bug_that_moves_a_file() -> None:
    moved = M_PY.replace("attr = 1", "attr = 2")
    truth = truth_of_bug(diff("p/m.py", M_PY, moved, to="p/k.py"), {"p/m.py": M_PY.encode()}.get)
    assert (truth.files, truth.modules, truth.added_files) == (("p/k.py",), ("p/k.py:Foo",), ("p/m.py",))


def test_bug_without_a_tree() -> None:
    truth = truth_of_bug(P1)
    assert (truth.files, truth.lines, truth.hunks) == (
        ("src/a.py",),
        {"src/a.py": ((13, 14),)},
        {"src/a.py": ((10, 8),)},
    )


# whatever the text

PIECES = st.lists(
    st.sampled_from(
        [
            *P1.splitlines(keepends=True),
            *NEW.splitlines(keepends=True),
            *RENAMED.splitlines(keepends=True),
            "+++ b/src/a.py\t2024\r\n",
            "--- a/src/a.py\n",
            "@@ -1 +1 @@\n",
            "@@ -0,0 +1,2 @@\n",
            "@@ -99999999999999999999,1 +1 @@\n",
            f"@@ -{'9' * 5000} +1 @@\n",
            "\\ No newline at end of file\n",
            '"a/\\000\\377.py"\n',
            '--- "a/\\000\\377.py"\n',
            "Binary files a/x and b/y differ\n",
            "GIT binary patch\n",
            "\ud800",
            "\r",
            "-def f():\n",
            "+    return 1\n",
        ]
    ),
    max_size=30,
).map("".join)


@given(patch=st.text() | PIECES, source=st.binary() | st.just(A_PY.encode()) | st.just(M_PY.encode()))
def test_no_text_raises_anything_else(patch: str, source: bytes) -> None:
    for told in (truth_of, truth_of_bug):
        for tree in (None, lambda path: source, {}.get):
            try:
                stored(told(patch, tree))
            except UnreadablePatch as error:
                assert str(error)


@given(
    st.lists(st.sampled_from(M_PY.splitlines()), max_size=12), st.lists(st.sampled_from(M_PY.splitlines()), max_size=12)
)
def test_a_diff_applies_and_its_reverse_is_the_diff_back(old: list[str], new: list[str]) -> None:
    before, after = ("".join(line + "\n" for line in lines) for lines in (old, new))
    if before == after:
        return
    forward, back = diff("x.txt", before, after), diff("x.txt", after, before)
    assert (
        truth_of_bug(forward, {"x.txt": before.encode()}.get).files
        == truth_of(back, {"x.txt": after.encode()}.get).files
    )
    assert truth_of(forward, {"x.txt": before.encode()}.get).missing == {}


def test_a_line_number_out_of_all_proportion_takes_no_time() -> None:
    patch = P1.replace("@@ -10,7 +10,8 @@", "@@ -999999999,7 +10,8 @@")
    truth = truth_of(patch, {"src/a.py": A_PY.encode()}.get)
    assert truth.lines == {"src/a.py": ((13, 13),)}, "found where it is"
