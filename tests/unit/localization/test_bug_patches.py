"""Patches that put the bug in; and whatever the text, no error but one."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.localization.extract import truth_of, truth_of_bug

from .samples import A_PY, DELETED, M_PY, NEW, P1, RENAMED, diff, stored

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
