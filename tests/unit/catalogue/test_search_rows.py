"""Import of code-search rows."""

import json
from pathlib import Path

import pytest

from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import (
    GitSource,
)
from sandbox_server.catalogue.localization.task import localized
from sandbox_server.errors import MalformedRequest, RowRejected

from .samples import BENCH, EDITS, imported

COMMIT = 40 * "c"
SEARCH = {
    "instance_id": "Owner__Repo-1",
    "repo": "Owner/Repo",
    "base_commit": COMMIT,
    "problem_statement": "It fails.",
    "patch": EDITS,
}


def test_code_search_rows(tmp_path: Path) -> None:
    """Repository and commit without an image, which the server makes."""
    (found,) = imported(tmp_path, SEARCH)
    assert found.sandbox.source == GitSource(repo="Owner/Repo", commit=COMMIT)
    assert found.sandbox.images == () and found.gold_patch == EDITS and found.dataset == "localization"
    assert found.grader is None and found.ungradable_because
    (elsewhere,) = imported(tmp_path, {**SEARCH, "repository": "https://example.org/x/y.git", "image": "mine:1"})
    assert elsewhere.sandbox.source == GitSource(url="https://example.org/x/y.git", commit=COMMIT)
    assert elsewhere.sandbox.images == ("mine:1",)
    (local,) = imported(tmp_path, {**SEARCH, "repository": "/srv/y.git", "use_patch": False})
    assert local.sandbox.source == GitSource(path="/srv/y.git", commit=COMMIT)
    (deep,) = imported(tmp_path, {**SEARCH, "source": {"repo": "a/b", "history": True}})
    assert deep.sandbox.source == GitSource(repo="a/b", commit=COMMIT, history=True)


def test_rows_whose_patch_brings_the_bug(tmp_path: Path) -> None:
    """SWE-smith rows, as built for code search and as published."""
    built = {**SEARCH, "repo": "swesmith/owner__repo.0123abcd", "base_commit": None, "use_patch": True}
    published = {key: value for key, value in built.items() if key not in ("use_patch", "base_commit")}
    published |= {"instance_id": "other", "FAIL_TO_PASS": ["t"], "image_name": "has/a.repository:1"}
    for found in imported(tmp_path, built, published):
        assert found.sandbox.source == GitSource(repo="swesmith/owner__repo.0123abcd", patch=EDITS)
        assert found.sandbox.images == () and found.gold_patch == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"base_commit": "main"}, "not a full commit id"),
        ({"repo": "../../etc"}, "not a name such as owner/name"),
        ({"repository": "ext::sh -c true"}, "custom transport"),
        ({"use_patch": "true", "patch": " "}, "there is none"),
    ],
)
def test_code_search_rows_that_are_wrong(tmp_path: Path, change: dict[str, object], why: str) -> None:
    with pytest.raises(RowRejected, match=why) as caught:
        imported(tmp_path, {**SEARCH, "instance_id": "other"}, {**SEARCH, **change})
    assert caught.value.line == 2


def test_a_named_family_takes_all_rows(tmp_path: Path) -> None:
    """A benchmark's rows are imported as code search tasks."""
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**BENCH, "base_commit": COMMIT}) + "\n")
    (found,) = read_instances(file, family="localization")
    assert found.sandbox.source == GitSource(repo="Owner/Repo", commit=COMMIT) and found.grader is None
    with pytest.raises(MalformedRequest, match=r"no family 'magic'; there are .*localization"):
        read_instances(file, family="magic")


def test_truth_of_a_patch_that_brings_the_bug(tmp_path: Path) -> None:
    """The fix reverts the patch, so the truth is what the patch touched, in the tree with the bug."""
    row = {**SEARCH, "repo": "swesmith/owner__repo.0123abcd", "base_commit": None, "use_patch": True}
    (found,) = imported(tmp_path, row)
    task = localized(found, None).localization
    assert task is not None and task.truth.files == ("tests/test_a.py",)
