#!/usr/bin/env python3
"""Builds the sample images and examples/instances.jsonl from the folders beside this file.

    python3 examples/build.py [--rows-only] [NAME...]

Standard library, git and docker only. Each folder holds repo/ (the tree at the base commit), gold.patch, wrong.patch,
test.patch, problem.md and instance.json (the row's other fields). An image is made again only when its folder changed.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BASE = "sandbox-samples/base:latest"
LABEL = "sandbox.samples.content"
UPSTREAM = "Ada Example <ada@example.org>"
HARNESS = "SWE-bench <setup@swebench.config>"  # who commits on top of base_commit in the benchmark's images


class Repository:
    """A git repository whose commit ids depend on nothing but its content."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, by: str = UPSTREAM, day: int = 1) -> str:
        """Run git as `by` on that day of 2025, deaf to the host's configuration; return its output."""
        name, _, email = by.rstrip(">").partition(" <")
        date = f"2025-{1 + day // 28:02d}-{1 + day % 28:02d}T12:00:00+0000"
        identity = {"NAME": name, "EMAIL": email, "DATE": date}
        who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, env=who | alone, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"git {' '.join(arguments)} in {self.path}: {done.stderr}")
        return done.stdout.strip()

    def commit(self, message: str, *, by: str = UPSTREAM, day: int) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, by=by, day=day)
        return self.git("rev-parse", "HEAD")


def build_repository(sample: Path, target: Path) -> str:
    """Lay the sample's history out in `target` as a benchmark image has it; return base_commit.

    HEAD is a harness commit on top of base_commit. Behind it lies what an agent must not find: the fix on a branch, a
    remote branch and a tag, in the reflog, in a stash and in a commit that nothing refers to.
    """
    repository = Repository(target)
    shutil.copy(sample / "repo" / "README.md", target)
    repository.commit("Begin", day=1)
    shutil.copytree(sample / "repo", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    base_commit = repository.commit("The package and its tests", day=20)

    repository.git("checkout", "-q", "-b", "next", day=40)
    for patch in ("gold.patch", "test.patch"):
        repository.git("apply", str(sample / patch))
    fix = repository.commit("Fix it", day=40)
    (target / "CHANGES.md").write_text("The fix is in.\n")
    later = repository.commit("Note the fix", day=41)
    repository.git("tag", "-a", "-m", "With the fix", "v9.9", fix, day=42)
    repository.git("remote", "add", "origin", "https://example.org/upstream.git")
    repository.git("update-ref", "refs/remotes/origin/main", later, day=43)

    repository.git("reset", "-q", "--hard", fix, day=44)
    (target / "LOST.md").write_text("Nothing refers to this commit.\n")
    repository.commit("Lost work on top of the fix", day=44)
    repository.git("checkout", "-q", "main", day=45)
    repository.git("branch", "-q", "-f", "next", later, day=45)
    repository.git("apply", str(sample / "gold.patch"))
    repository.git("stash", "push", "-q", "--include-untracked", day=46)

    repository.commit("SWE-bench", by=HARNESS, day=47)
    return base_commit


def files_after(sample: Path, patch: str) -> dict[str, str]:
    """Path -> new text of every (text) file that the patch changes or adds."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        repository = Repository(tree)
        shutil.copytree(sample / "repo", tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        repository.commit("before", day=1)
        repository.git("apply", str(sample / patch))
        repository.git("add", "-A")
        changed = repository.git("diff", "--cached", "--name-only", "-z", "HEAD").split("\0")
        return {path: (tree / path).read_text() for path in changed if path}


def image_name(sample: Path) -> str:
    return f"sandbox-samples/{sample.name}:latest"


def row(sample: Path, base_commit: str) -> dict[str, object]:
    """The sample's catalogue row: SWE-bench's columns, or our own schema where it names a grader."""
    fields = json.loads((sample / "instance.json").read_text())
    text = {name: (sample / f"{name}.patch").read_text() for name in ("gold", "test")}
    problem = (sample / "problem.md").read_text()
    if "grader" in fields:
        return {
            **fields,
            "dataset": "samples",
            "base_commit": base_commit,
            "problem_statement": problem,
            "sandbox": {"images": [image_name(sample)], "workdir": "/testbed"},
            "files": files_after(sample, "test.patch"),
            "gold_patch": text["gold"],
        }
    return {
        **fields,
        "base_commit": base_commit,
        "environment_setup_commit": base_commit,
        "patch": text["gold"],
        "test_patch": text["test"],
        "problem_statement": problem,
        "FAIL_TO_PASS": json.dumps(fields["FAIL_TO_PASS"], ensure_ascii=False),
        "PASS_TO_PASS": json.dumps(fields["PASS_TO_PASS"], ensure_ascii=False),
        "image": image_name(sample),
        "workdir": "/testbed",
    }


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"docker {' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


def content_hash(sample: Path) -> str:
    """Of everything that goes into the image."""
    digest = hashlib.sha256(docker("image", "inspect", "-f", "{{.Id}}", BASE).encode())
    inputs = [Path(__file__), *(sample / f"{name}.patch" for name in ("gold", "test"))]
    inputs += sorted(p for p in (sample / "repo").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    for path in inputs:
        digest.update(f"{path.relative_to(HERE)}\0{os.access(path, os.X_OK)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_image(sample: Path, repository: Path) -> bool:
    """Make the sample's image from its repository; False when the image that is there is of the same content."""
    content, name = content_hash(sample), image_name(sample)
    if docker("images", "-q", "--filter", f"label={LABEL}={content}", name):
        return False
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(repository, Path(folder) / "testbed", symlinks=True)
        Path(folder, "Dockerfile").write_text(
            f"FROM {BASE}\n"
            "COPY testbed /testbed\n"
            "WORKDIR /testbed\n"
            # Also writes an index that knows the files' new inodes, so that the first `git status` is quick.
            'RUN test -z "$(git status --porcelain)"\n'
            f"LABEL {LABEL}={content}\n"
        )
        docker("build", "-q", "-t", name, folder)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows-only", action="store_true", help="write instances.jsonl, build no image")
    parser.add_argument("names", nargs="*", help="samples whose images to build; all by default")
    options = parser.parse_args()

    rows = []
    for sample in sorted(path.parent for path in HERE.glob("*/instance.json")):
        with tempfile.TemporaryDirectory() as folder:
            repository = Path(folder) / "repository"
            rows.append(row(sample, build_repository(sample, repository)))
            if not options.rows_only and (not options.names or sample.name in options.names):
                made = build_image(sample, repository)
                print(f"{image_name(sample)}: {'built' if made else 'up to date'}", file=sys.stderr)
    text = "".join(json.dumps(one, ensure_ascii=False, sort_keys=True) + "\n" for one in rows)
    target = HERE / "instances.jsonl"
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


if __name__ == "__main__":
    main()
