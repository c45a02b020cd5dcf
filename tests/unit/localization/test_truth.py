"""The truth read from a patch: files and lines. Test names contain the case numbers of the specification."""

import pytest

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.localization.extract import truth_of
from sandbox_server.catalogue.localization.published import published_truth
from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.catalogue.rows import SourceRow

from .samples import A_PY, BINARY, DELETED, MODE, NEW, P1, PURE_RENAME, RENAMED, diff, stored


def test_a_level_that_the_row_lacks_is_unknown_and_not_empty() -> None:
    """An answer would be scored at a level of which `dataset build` says that it could not be found."""
    changes = [{"file": "a.py", "changes": {"edited_modules": None, "edited_entities": ["a.py:f"]}}]
    row = {"file_changes": changes, "missing_levels": ["modules"]}
    truth = published_truth(SourceRow(1, row))
    assert (truth.files, truth.modules, truth.entities) == (("a.py",), None, ("a.py:f",))
    assert published_truth(SourceRow(1, {"file_changes": changes})).modules == ()


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
        ("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "not a path in a repository"),
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
