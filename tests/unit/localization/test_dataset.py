"""`sandbox-server dataset build`: its output, and that it is reproducible."""

import ast
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pyarrow
import pyarrow.parquet
import pytest

from sandbox_server import cli
from sandbox_server.catalogue.instance import instance_hash
from sandbox_server.catalogue.localization.dataset import BuildOptions, build
from sandbox_server.catalogue.localization.dataset_row import SCHEMA
from sandbox_server.catalogue.read import read_rows
from sandbox_server.errors import MalformedRequest

from .conftest import Clones, patched

EDIT = patched("        return 1", "        return 10")
RENAME = "diff --git a/src/old.py b/src/new.py\nsimilarity index 100%\nrename from src/old.py\nrename to src/new.py\n"
NEW = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+a = 1\n"


def row(number: int = 1, **fields: object) -> dict[str, object]:
    """A row as in published data sets; a field given as None is left out."""
    made: dict[str, object] = {
        "instance_id": f"acme__ledger-{number}",
        "repo": "acme/ledger",
        "base_commit": "HEAD",
        "problem_statement": f"problem {number}",
        "patch": EDIT,
        **fields,
    }
    return {name: value for name, value in made.items() if value is not None}


def written(folder: Path, *rows: object) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows))
    return file


def built(file: Path) -> list[dict[str, object]]:
    return pyarrow.parquet.read_table(file).to_pylist()


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def one(tmp_path: Path, clones: Clones | None, **fields: object) -> dict[str, object]:
    """Build a data set; return its only row."""
    source = written(tmp_path, row(**fields))
    report = build(source, BuildOptions(tmp_path / "out", clones.folder if clones else None, split=0))
    assert report.bad == []
    assert report.train == 1
    return built(tmp_path / "out" / "train.parquet")[0]


def test_every_column(tmp_path: Path, clones: Clones) -> None:
    """The columns that trainers read, and the truth at all levels."""
    fields = {"PASS_TO_PASS": '["t::b"]', "FAIL_TO_PASS": ["t::a"], "version": 1.5, "image_name": "x", "hints_text": ""}
    made = one(tmp_path, clones, patch=EDIT + RENAME + NEW, base_commit=clones.commit, **fields)
    assert made.pop("patch") == EDIT + RENAME + NEW
    assert made == {
        "instance_id": "acme__ledger-1",
        "instance_hash": instance_hash("acme__ledger-1"),
        "repo": "acme/ledger",
        "base_commit": clones.commit,
        "version": "1.5",
        "created_at": None,
        "problem_statement": "problem 1",
        "hints_text": None,
        "test_patch": None,
        "FAIL_TO_PASS": ["t::a"],
        "PASS_TO_PASS": ["t::b"],
        "use_patch": False,
        "prompt": [{"content": "problem 1", "role": "user"}],
        "target": "[('src/a.py', [2, 7]), ('src/old.py', [0, 0])]",
        "file_changes": [
            {
                "file": "src/a.py",
                "changes": {
                    "added_entities": None,
                    "added_modules": None,
                    "edited_entities": ["src/a.py:Foo.bar"],
                    "edited_modules": ["src/a.py:Foo"],
                },
            },
            {
                "file": "src/old.py",
                "changes": {
                    "added_entities": None,
                    "added_modules": None,
                    "edited_entities": [],
                    "edited_modules": [],
                },
            },
        ],
        "files": ["src/a.py", "src/old.py"],
        "modules": ["src/a.py:Foo"],
        "entities": ["src/a.py:Foo.bar"],
        "lines": [{"file": "src/a.py", "spans": [{"first": 5, "last": 5}]}],
        "hunks": [{"file": "src/a.py", "spans": [{"start": 2, "count": 7}]}],
        "added_files": ["n.py", "src/new.py"],
        "skipped": [],
        "unanswerable": False,
        "empty_levels": [],
        "missing_levels": [],
        "missing": [],
        "extra": '{"image_name": "x"}',
    }


def test_target_is_what_their_rewards_evaluate(tmp_path: Path, clones: Clones) -> None:
    target = one(tmp_path, clones)["target"]
    assert {file for file, (_, _) in ast.literal_eval(str(target))} == {"src/a.py"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"repo": "acme/none"}, "no clone of acme/none among the repositories"),
        ({"base_commit": "0" * 40}, "does not have the commit"),
    ],
)
def test_without_its_tree_a_row_keeps_its_files(
    tmp_path: Path, clones: Clones, fields: dict[str, str], why: str
) -> None:
    made = one(tmp_path, clones, **fields)
    assert made["files"] == ["src/a.py"]
    assert (made["modules"], made["entities"], made["missing_levels"]) == (None, None, ["modules", "entities"])
    assert all(why in item["why"] for item in made["missing"])  # type: ignore[attr-defined]
    assert {item["what"] for item in made["missing"]} == {"modules", "entities", "src/a.py"}  # type: ignore[attr-defined]


def test_without_any_trees(tmp_path: Path) -> None:
    made = one(tmp_path, None)
    assert (made["files"], made["entities"]) == (["src/a.py"], None)


def test_flags(tmp_path: Path, clones: Clones) -> None:
    assert one(tmp_path, clones, patch=NEW)["unanswerable"] is True
    made = one(tmp_path, clones, patch=patched("one", "two", "README.md"))
    assert (made["unanswerable"], made["empty_levels"], made["entities"]) == (False, ["modules", "entities"], [])


@pytest.mark.parametrize("use_patch", [None, True])
def test_patch_that_brings_the_bug(tmp_path: Path, clones: Clones, use_patch: bool | None) -> None:
    """SWE-smith: no commit, and the agent sees the patched tree, so line numbers refer to it."""
    bug = patched("    attr = 1\n", "    attr = 1\n    more = 2\n")
    made = one(tmp_path, clones, repo="swesmith/acme__x.12345678", base_commit=None, patch=bug, use_patch=use_patch)
    assert (made["use_patch"], made["base_commit"], made["modules"]) == (True, None, ["src/a.py:Foo"])
    assert made["lines"] == [{"file": "src/a.py", "spans": [{"first": 3, "last": 3}]}]


def test_schema_is_the_same_whatever_is_empty(tmp_path: Path, clones: Clones) -> None:
    """Columns with only nulls would otherwise get type null, and files could not be read together."""
    one(tmp_path, None, base_commit=None)
    out = tmp_path / "out"
    bare = [pyarrow.parquet.read_schema(out / name) for name in ("train.parquet", "validation.parquet")]
    one(tmp_path, clones, hints_text="h", created_at="2024", version="1", PASS_TO_PASS=["t"])
    assert [*bare, pyarrow.parquet.read_schema(out / "train.parquet")] == [SCHEMA] * 3
    assert built(out / "validation.parquet") == []


def test_bad_rows_are_named_and_the_rest_is_built(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        row(1),
        "{no json",
        row(3, patch="no diff"),
        row(4, patch=" "),
        row(5, problem_statement=""),
        row(1),
        row(7, repo=None),
        row(8, problem_statement="half a pair: \ud800"),
        [],
        row(10, PASS_TO_PASS=7),
        row(11),
    )
    report = build(source, BuildOptions(tmp_path / "out", split=0.5))
    assert (report.train, report.validation) == (1, 1)
    whys = [bad.why for bad in report.bad]
    for line, why in (
        (2, "not JSON"),
        (3, "patch: there is no file in it"),
        (4, "patch: it is empty"),
        (5, "problem_statement is empty"),
        (6, "instance_id 'acme__ledger-1' is on line 1 already"),
        (7, "repo is missing"),
        (8, "half of a surrogate pair"),
        (9, "a row must be a JSON object"),
        (10, "PASS_TO_PASS is not a list of texts"),
    ):
        assert whys.pop(0).startswith(f"line {line}: ") and why in report.bad[line - 2].why
    assert whys == []
    told = [json.loads(line) for line in (tmp_path / "out" / "bad_rows.jsonl").read_text().splitlines()]
    assert [item["line"] for item in told] == list(range(2, 11))


def many(tmp_path: Path, count: int = 200) -> Path:
    return written(tmp_path, *(row(number, patch="bad" if number == 100 else EDIT) for number in range(count)))


def test_split_is_exact_and_by_seed(tmp_path: Path) -> None:
    source = many(tmp_path, 100)
    ids: dict[int, list[str]] = {}
    for seed in (42, 43):
        out = tmp_path / str(seed)
        report = build(source, BuildOptions(out, seed=seed))
        assert (report.train, report.validation) == (80, 20)
        train, validation = (
            [str(made["instance_id"]) for made in built(out / f"{name}.parquet")] for name in ("train", "validation")
        )
        assert sorted([*train, *validation]) == sorted(f"acme__ledger-{number}" for number in range(100))
        assert train == sorted(train, key=lambda name: int(name.split("-")[1])), "the input's order"
        ids[seed] = validation
    assert ids[42] != ids[43]
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(reversed(lines)))
    build(source, BuildOptions(tmp_path / "turned"))
    turned = [made["instance_id"] for made in built(tmp_path / "turned" / "validation.parquet")]
    assert sorted(turned) == sorted(ids[42]), "the order of the rows has no part in it"


def test_same_bytes_with_any_number_of_processes(tmp_path: Path, clones: Clones) -> None:
    source = many(tmp_path)
    for workers in (1, 2):
        build(source, BuildOptions(tmp_path / str(workers), clones.folder, workers=workers))
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert sorted(digests(tmp_path / "1")) == ["bad_rows.jsonl", "train.parquet", "validation.parquet"]


KILLED = """
import os, signal, sys
from pathlib import Path
from sandbox_server.catalogue.localization.dataset import BuildOptions, build

def progress(done, total):
    if done >= 128:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    source, out, repos, workers = sys.argv[1:]
    build(Path(source), BuildOptions(Path(out), Path(repos), workers=int(workers)), progress)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_run_again_gives_the_same_bytes(tmp_path: Path, clones: Clones, workers: int) -> None:
    """Finished parts are not built again; no process of the killed build survives."""
    source, out = many(tmp_path), tmp_path / "out"
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    command = [sys.executable, str(program), str(source), str(out), str(clones.folder), str(workers)]
    # its end of the pipe closes when the last of its processes is gone
    died = subprocess.run(command, env=dict(os.environ), capture_output=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not (out / "train.parquet").exists()
    report = build(source, BuildOptions(out, clones.folder, workers=workers))
    assert 128 <= report.resumed < 200
    build(source, BuildOptions(tmp_path / "whole", clones.folder, workers=1))
    assert digests(out) == digests(tmp_path / "whole")


def test_parts_of_another_build_do_not_count(tmp_path: Path) -> None:
    """Another input in the same folder must not get this one's rows."""
    out = tmp_path / "out"
    other = out / ".building" / ("0" * 32)
    other.mkdir(parents=True)
    (other / "000000.jsonl").write_text('{"row": {}}\n')
    report = build(written(tmp_path, row()), BuildOptions(out, split=0))
    assert (report.train, report.resumed) == (1, 0)
    assert sorted(file.name for file in out.iterdir()) == ["train.parquet", "validation.parquet"]


def test_json_list_and_parquet_in(tmp_path: Path) -> None:
    """A built data set can be the input of another build."""
    as_list = tmp_path / "rows.json"
    as_list.write_text(json.dumps([row(1, image_name="x"), row(2)]))
    build(as_list, BuildOptions(tmp_path / "a", split=0))
    build(tmp_path / "a" / "train.parquet", BuildOptions(tmp_path / "b", split=0))
    assert built(tmp_path / "a" / "train.parquet") == built(tmp_path / "b" / "train.parquet")
    assert len(read_rows(tmp_path / "b" / "train.parquet")) == 2


@pytest.mark.parametrize(
    ("options", "why"), [({"split": 1.0}, "is not within"), ({"repos": Path("/nonexistent/clones")}, "is not a folder")]
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with pytest.raises(MalformedRequest, match=why):
        build(written(tmp_path, row()), BuildOptions(tmp_path / "out", **options))  # type: ignore[arg-type]


def test_one_build_at_a_time(tmp_path: Path) -> None:
    source = written(tmp_path, *(row(number) for number in range(3)))
    refused: list[str] = []

    def second(done: int, total: int) -> None:
        with pytest.raises(MalformedRequest) as caught:
            build(source, BuildOptions(tmp_path / "out"))
        refused.append(caught.value.detail)

    build(source, BuildOptions(tmp_path / "out"), second)
    assert "another build writes to" in refused[0]


def command(tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `sandbox-server` in this process, which spares each call its imports."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    words, out, err = ["sandbox-server", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {**kept, "SANDBOX_DATA_DIR": str(tmp_path / "data")}, clear=True),
        mock.patch.object(sys, "argv", words),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    code = ended.value.code
    if isinstance(code, str):  # Python would print it
        return subprocess.CompletedProcess(words, 1, out.getvalue(), err.getvalue() + code)
    return subprocess.CompletedProcess(words, code or 0, out.getvalue(), err.getvalue())


def test_the_command(tmp_path: Path, clones: Clones) -> None:
    source, out = written(tmp_path, *(row(number) for number in range(5)), row(6, patch=NEW)), tmp_path / "out"
    done = command(tmp_path, "dataset", "build", "--input", source, "--output", out, "--repos", clones.folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{out}/train.parquet: 5 rows",
        f"{out}/validation.parquet: 1 rows",
        "  1 unanswerable: no file of the base tree has to be found",
    ]
    written(tmp_path, row(1), row(2, patch="no diff"))
    done = command(tmp_path, "dataset", "build", "--input", source, "--output", out)
    assert done.returncode == 3
    assert done.stderr == f"1 rows left out ({out}/bad_rows.jsonl):\n  line 2: patch: there is no file in it\n"
