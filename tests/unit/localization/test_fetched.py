"""Base trees through mirrors: fetched ones are read, missing ones are reported."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from sandbox_server.catalogue.git_fetch import MirrorConfig
from sandbox_server.catalogue.instance import GitSource, SandboxSpec, TaskInstance
from sandbox_server.catalogue.localization.dataset import BuildOptions, build
from sandbox_server.catalogue.localization.fetched import FetchedTrees
from sandbox_server.catalogue.localization.task import localized
from sandbox_server.catalogue.repositories import Mirrors
from tests.repository import BUG_PATCH, Repository, make_repository

FIX_PATCH = """\
diff --git a/src/sum.py b/src/sum.py
--- a/src/sum.py
+++ b/src/sum.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""


@pytest.fixture
def remote(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "remotes" / "owner" / "name")


def mirrors(tmp_path: Path) -> Mirrors:
    remotes = tmp_path / "remotes"
    return Mirrors(MirrorConfig(tmp_path / "mirrors", url=f"{remotes}/{{repo}}", folders=(remotes,), attempts=1))


def row(name: str, **fields: object) -> dict[str, object]:
    return {"instance_id": name, "repo": "owner/name", "problem_statement": "wrong", "patch": FIX_PATCH, **fields}


async def built(tmp_path: Path, *rows: dict[str, object], workers: int = 1) -> dict[str, dict]:
    """Id -> row of what a build through mirrors makes of these."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    opened, fetched = mirrors(tmp_path), FetchedTrees()
    await fetched.fetch_rows(opened, file)
    await opened.close()
    report = build(file, BuildOptions(tmp_path / "out", split=0, workers=workers, fetched=fetched))
    assert report.bad == []
    made = pyarrow.parquet.read_table(tmp_path / "out" / "train.parquet").to_pylist()
    return {one["instance_id"]: one for one in made}


async def test_rows_by_every_kind_of_address(tmp_path: Path, remote: Repository) -> None:
    """A row is read from another repository or commit than it names."""
    rows = await built(
        tmp_path,
        row("by-name", base_commit=remote.base),
        row("by-path", repo="x/y", repository=str(remote.path), base_commit=remote.base),
        row("bug", base_commit=None, use_patch=True, patch=BUG_PATCH, source=json.dumps({"repo": "owner/name"})),
    )
    assert {name: (one["entities"], one["missing"]) for name, one in rows.items()} == {
        "by-name": (["src/sum.py:add"], []),
        "by-path": (["src/sum.py:add"], []),
        "bug": (["src/right.py:double"], []),
    }


async def test_what_cannot_be_had_is_told(tmp_path: Path, remote: Repository) -> None:
    """One repository that is gone stops a build of thousands, or its rows pass for complete."""
    rows = await built(
        tmp_path,
        row("gone", repo="owner/gone", base_commit=remote.base),
        row("short", base_commit=remote.base[:8]),
        row("elsewhere", repository="/etc", base_commit=remote.base),
        row("credentials", repository="https://user:secret@example.org/x", base_commit=remote.base),
        row("good", base_commit=remote.base),
    )
    assert rows["good"]["missing_levels"] == []
    for name, why in (
        ("gone", "owner/gone"),
        ("short", "not a full commit id"),
        ("elsewhere", "SANDBOX_REPOSITORY_FOLDERS"),
        ("credentials", "holds credentials"),
    ):
        assert rows[name]["missing_levels"] == ["modules", "entities"] and rows[name]["files"] == ["src/sum.py"]
        assert any(why in told["why"] for told in rows[name]["missing"]), rows[name]["missing"]
        assert "secret" not in str(rows[name]["missing"])


async def test_many_rows_by_processes(tmp_path: Path, remote: Repository) -> None:
    """What was fetched does not reach the processes of a build."""
    rows = await built(tmp_path, *(row(f"n-{n}", base_commit=remote.base) for n in range(130)), workers=2)
    assert len(rows) == 130 and all(one["entities"] == ["src/sum.py:add"] for one in rows.values())


async def test_instances(tmp_path: Path, remote: Repository) -> None:
    """An instance of SWE-smith is localized by the fix's side, or one with an image finds no tree."""
    bug = GitSource(repo="owner/name", commit=remote.base, patch=BUG_PATCH)
    common = {"instance_id": "a", "repo": "owner/name"}
    smith = TaskInstance(**common, sandbox=SandboxSpec(source=bug))
    fixed = {"base_commit": remote.base, "gold_patch": FIX_PATCH}
    imaged = TaskInstance(**common, sandbox=SandboxSpec(images=("x",)), **fixed)
    opened, fetched = mirrors(tmp_path), FetchedTrees()
    await fetched.fetch_instances(opened, [smith, imaged])
    await opened.close()
    found = [localized(one, fetched.instance_tree(one)).localization for one in (smith, imaged)]
    assert [one.truth.entities for one in found if one] == [("src/right.py:double",), ("src/sum.py:add",)]
