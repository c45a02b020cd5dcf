"""Old rows through the real swebench 4.1.0, and names that the pinned swebench has to know."""

import ast
import importlib.util
import json
from pathlib import Path

import pytest

from sandbox_server.catalogue.conversion import Swebench41
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.catalogue.log_parsers import LOG_PARSERS
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import GraderBroken, RowRejected
from tests.unit.catalogue.samples import ADDS, EDITS

REAL_ROWS = Path(__file__).parents[4] / "shared" / "swebench_rows.jsonl"
FLASK = {
    "instance_id": "pallets__flask-1",
    "repo": "pallets/flask",
    "version": "2.3",
    "base_commit": "abc",
    "test_patch": EDITS,
    "FAIL_TO_PASS": '["t"]',
    "PASS_TO_PASS": "[]",
}


def imported(tmp_path: Path, swebench4_dir: Path, *rows: dict[str, object]) -> list[TaskInstance]:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_instances(file, swebench4_dir=swebench4_dir)


def test_old_rows_become_complete(tmp_path: Path, swebench4_dir: Path) -> None:
    """Scripts of the library itself; added-only test patches repaired; unknown repositories and versions told."""
    rows = [
        FLASK,
        {**FLASK, "instance_id": "added", "test_patch": ADDS},
        {**FLASK, "instance_id": "both", "test_patch": EDITS + ADDS},
        {**FLASK, "instance_id": "unknown", "repo": "no/body"},
        {**FLASK, "instance_id": "version", "version": "99"},
    ]
    edits, added, both, unknown, version = imported(tmp_path, swebench4_dir, *rows)
    for instance in (edits, added, both):
        assert isinstance(instance.grader, SwebenchGrader)
        assert instance.grader.log_parser == "parse_log_pytest"
        assert instance.conversion == "swebench 4.1.0"
        script = instance.grader.eval_script.split("\n")
        assert script[:2] == ["#!/bin/bash", "set -uxo pipefail"]
        assert script.index(": '>>>>> Start Test Output'") < script.index(": '>>>>> End Test Output'")
        assert "git checkout abc " not in script  # bare
    assert edits.grader.eval_script.count("\ngit checkout abc tests/test_a.py\n") == 2
    assert edits.grader.new_test_files == ()
    assert added.grader.eval_script.count("\nrm -f tests/test_new.py\n") == 2
    assert added.grader.new_test_files == both.grader.new_test_files == ("tests/test_new.py",)
    assert unknown.ungradable_because == "swebench 4.1.0 does not know the repository no/body"
    assert version.ungradable_because == "swebench 4.1.0 does not know version '99' of pallets/flask"
    assert unknown.grader is None and unknown.conversion == ""


def test_a_row_that_the_library_cannot_use_is_told_by_line(tmp_path: Path, swebench4_dir: Path) -> None:
    """Not as the traceback of a subprocess."""
    with pytest.raises(RowRejected, match="line 2: base_commit is missing"):
        imported(tmp_path, swebench4_dir, FLASK, {**FLASK, "instance_id": "x", "base_commit": None})
    with pytest.raises(RowRejected, match="line 2: test_patch"):
        imported(tmp_path, swebench4_dir, FLASK, {**FLASK, "instance_id": "x", "test_patch": "no diff"})


def test_a_broken_library_is_told(tmp_path: Path) -> None:
    """A folder that holds another version, or half of one, is a fault of the set-up."""
    (tmp_path / "swebench").mkdir()
    (tmp_path / "swebench" / "__init__.py").write_text("__version__ = '4.1.0'\n")
    with pytest.raises(GraderBroken, match=r"failed: ModuleNotFoundError: No module named 'swebench\.harness'"):
        Swebench41(tmp_path).convert([SourceRow(1, FLASK)])


@pytest.mark.skipif(not REAL_ROWS.exists(), reason="the real rows are not beside this repository")
def test_real_rows(swebench4_dir: Path) -> None:
    """Nine rows of the benchmark, sphinx-8595 among them, whose test patch only adds a file."""
    found = {it.instance_id: it for it in read_instances(REAL_ROWS, swebench4_dir=swebench4_dir)}
    assert len(found) == 9
    for instance in found.values():
        assert isinstance(instance.grader, SwebenchGrader), instance.ungradable_because
        assert instance.grader.log_parser in LOG_PARSERS
        assert instance.fail_to_pass
    sphinx = found["sphinx-doc__sphinx-8595"]
    assert sphinx.grader.new_test_files and f"git checkout {sphinx.base_commit} \n" not in sphinx.grader.eval_script
    assert found["django__django-10914"].grader.log_parser == "parse_log_django"
    assert found["sympy__sympy-24909"].grader.log_parser == "parse_log_sympy"


def test_the_parsers_are_those_of_the_pinned_library() -> None:
    """A name that an import lets through and the library does not know ends as an infra verdict."""
    package = importlib.util.find_spec("swebench")
    assert package is not None and package.submodule_search_locations
    source = Path(package.submodule_search_locations[0], "harness", "log_parsers", "__init__.py").read_text()
    for node in ast.walk(ast.parse(source)):  # read, not imported: importing it costs seconds and 170 MB
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PARSER_REGISTRY":
            assert isinstance(node.value, ast.Dict)
            assert {key.value for key in node.value.keys if isinstance(key, ast.Constant)} == LOG_PARSERS
            return
    raise AssertionError("swebench has no PARSER_REGISTRY any more")
