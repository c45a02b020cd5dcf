"""Base trees out of a folder of clones."""

from pathlib import Path

import pytest

from sandbox_server.catalogue.localization.trees import CloneFolder, NoTree

from .conftest import BASE, Clones


@pytest.mark.parametrize("repo", ["acme/ledger", "acme/bare", "swesmith/acme__x.12345678"])
@pytest.mark.parametrize("commit", [True, False])
def test_files_of_every_kind_of_clone(clones: Clones, repo: str, commit: bool) -> None:
    """With a work tree or bare, by either way of naming it; without a commit HEAD counts."""
    asked = ["src/a.py", "absent.py", "README.md", "src", "src/a.py", "a\nb.py"]
    found = CloneFolder(clones.folder).files(repo, clones.commit if commit else "", asked)
    assert found == {name: BASE[name].encode() for name in ("src/a.py", "README.md")}


@pytest.mark.parametrize(
    ("repo", "commit", "why"),
    [
        ("acme/none", "HEAD", "no clone of acme/none among the repositories: `git clone` it to acme__none there"),
        ("acme/ledger", "0" * 40, "does not have the commit 0000"),
        ("acme/ledger", "--help", "no commit id"),
        ("../clones/acme__ledger", "HEAD", "is not a name of a repository"),
        ("/etc", "HEAD", "is not a name of a repository"),
        ("", "HEAD", "is not a name of a repository"),
    ],
)
def test_what_is_not_there_says_so(clones: Clones, repo: str, commit: str, why: str) -> None:
    with pytest.raises(NoTree, match=why):
        CloneFolder(clones.folder).files(repo, commit, ["src/a.py"])


def test_a_broken_clone_is_no_empty_tree(tmp_path: Path) -> None:
    """Its folder is not named: the reason goes into data that is the same wherever it is built."""
    (tmp_path / "acme__half").mkdir()
    (tmp_path / "acme__half" / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(NoTree, match="git cannot read the clone acme__half: ") as caught:
        CloneFolder(tmp_path).files("acme/half", "", ["a.py"])
    assert str(tmp_path) not in str(caught.value)
