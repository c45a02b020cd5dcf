#!/usr/bin/env python3
"""Builds the repository of the code-search samples, and their rows, from the folders of search/.

    python3 examples/build_search.py TARGET

Standard library and git only. TARGET gets samples/almanac, a repository with the fixes after the base commit, and
rows.jsonl, three rows that name it by `repo`. Each folder of search/ beside repo/ is an instance: problem.md,
gold.patch or, where the patch brings the bug, bug.patch, and rollout.json, which the demo plays.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from build import HERE, Repository

SEARCH = HERE / "search"
REPO = "samples/almanac"


def build_repository(target: Path) -> str:
    """The history; return the base commit. HEAD is two commits after it, which an agent must not find."""
    repository = Repository(target)
    shutil.copy(SEARCH / "repo" / "README.md", target)
    repository.commit("Begin", day=1)
    shutil.copytree(SEARCH / "repo", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    base_commit = repository.commit("The package and its tests", day=20)
    for day, patch in enumerate(sorted(SEARCH.glob("*/gold.patch")), start=30):
        repository.git("apply", str(patch))
        repository.commit((patch.parent / "problem.md").read_text().partition("\n")[0], day=day)
    return base_commit


def row(sample: Path, base_commit: str) -> dict[str, object]:
    """As data sets of code search have it; SWE-smith's where the patch brings the bug."""
    brings_the_bug = (sample / "bug.patch").exists()
    return {
        "instance_id": f"samples__almanac-{sample.name}",
        "repo": REPO,
        "base_commit": base_commit,
        "problem_statement": (sample / "problem.md").read_text(),
        "patch": (sample / ("bug.patch" if brings_the_bug else "gold.patch")).read_text(),
        "use_patch": brings_the_bug,
        "dialect": "tool_calls",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    target = parser.parse_args().target
    (target / REPO).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        made = Path(folder, "repository")
        base_commit = build_repository(made)
        shutil.rmtree(target / REPO, ignore_errors=True)
        made.rename(target / REPO)
    samples = sorted(path.parent for path in SEARCH.glob("*/rollout.json"))
    rows = [json.dumps(row(sample, base_commit), sort_keys=True) + "\n" for sample in samples]
    (target / "rows.jsonl").write_text("".join(rows))


if __name__ == "__main__":
    main()
