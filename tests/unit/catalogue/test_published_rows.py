"""Rows of data sets with columns of their own."""

import json
from pathlib import Path

import pytest

from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import R2eGrader, SwebenchGrader, TaskInstance
from sandbox_server.errors import RowRejected
from sandbox_server.grading.graders.r2e import judged
from sandbox_server.verdicts import VerdictName
from tests.conformance.catalogue.format_rows import ROWS


def imported(tmp_path: Path, name: str, **others: object) -> TaskInstance:
    file = tmp_path / "row.json"
    file.write_text(json.dumps(ROWS[name] | others))
    return read_instances(file)[0]


def script(instance: TaskInstance) -> str:
    assert isinstance(instance.grader, SwebenchGrader), instance.ungradable_because
    return instance.grader.eval_script


def config(**others: object) -> dict[str, object]:
    return {"install_config": {"test_cmd": ["cd a", "go test ./..."], "log_parser": "parse_log_gotest", **others}}


def test_a_row_of_rebench_runs_as_its_configuration_says(tmp_path: Path) -> None:
    """Its tests run in another folder, without its environment, or not at all."""
    second = imported(tmp_path, "SWE-rebench V2", **config(install=["go mod download"]))
    assert (second.sandbox.workdir, second.dataset) == ("/ledger", "swe-rebench")
    assert second.sandbox.images == ("docker.io/swerebenchv2/acme-ledger:7",)
    assert "go mod download" in script(second) and "cd a\ngo test ./..." in script(second)
    first = imported(tmp_path, "SWE-rebench V2", image_name=None, docker_image="swerebench/x:1", **config())
    assert first.sandbox.workdir == "/testbed" and "activate testbed" in script(first)
    bare = imported(tmp_path, "SWE-rebench V2", image_name=None, **config())
    assert bare.sandbox.images[0] == "swerebench/sweb.eval.x86_64.acme_1776_ledger-7:latest"
    own = imported(tmp_path, "SWE-rebench V2", test_cmd="make check", log_parser="parse_log_pytest", **config())
    assert "make check" in script(own) and "go test" not in script(own)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (config(log_parser="parse_log_elixir"), "'parse_log_elixir'; give the row"),
        ({**config(), "FAIL_TO_PASS": ["works (0.31s)"]}, "hold the time that they took"),
        ({**config(), "PASS_TO_PASS": ["works [12 ms]"]}, "hold the time that they took"),
    ],
)
def test_a_row_of_rebench_that_cannot_be_graded_says_why(tmp_path: Path, row: dict[str, object], why: str) -> None:
    """A test whose name is another one in each run fails for ever, and the right patch earns nothing."""
    instance = imported(tmp_path, "SWE-rebench V2", **row)
    assert instance.grader is None and why in instance.ungradable_because


@pytest.mark.parametrize("repo", ["acme/ledger", "pydantic/pydantic"])
def test_a_row_of_live_runs_its_commands(tmp_path: Path, repo: str) -> None:
    """The set's Python rows are ungradable; or those of a repository that SWE-Gym has too are taken for SWE-Gym's."""
    live = imported(tmp_path, "SWE-bench-Live", repo=repo, rebuild_cmds=["make"])
    assert (live.dataset, live.sandbox.workdir) == ("swebench-live", "/testbed")
    assert live.sandbox.images == ("starryzhang/sweb.eval.x86_64.acme_1776_ledger-11:latest",)
    assert "make\n" in script(live) and "pytest -rA" in script(live)
    assert isinstance(live.grader, SwebenchGrader) and live.grader.log_parser == "parse_log_pytest"
    own = imported(tmp_path, "SWE-bench-Live MultiLang", repo=repo, test_cmd="cargo test", log_parser="parse_log_cargo")
    apart = imported(tmp_path, "SWE-bench-Live", repo=repo, print_cmds=["cat log.txt"])
    assert apart.grader is None, "its log is printed by a command of its own"
    assert "cargo test" in script(own) and own.sandbox.images[0].startswith("starryzhang/")
    rebench = imported(tmp_path, "SWE-rebench V2", repo=repo, **config())
    assert rebench.dataset == "swe-rebench"


def test_multi_swe(tmp_path: Path) -> None:
    """The fix lies in the agent's container or where its code is tested, or a test that is new counts as kept."""
    tests = {"n2p_tests": {"b": {}, "a": {}}, "p2p_tests": {"name": ["c", "d"], "run": ["PASS", "PASS"]}}
    own = {"test_cmd": "make test", "log_parser": "parse_log_gotest"}
    instance = imported(tmp_path, "Multi-SWE-bench", **tests, **own)
    assert (instance.instance_id, instance.repo) == ("acme__ledger-9", "acme/ledger")
    assert (instance.fail_to_pass, instance.pass_to_pass) == (("a", "b"), ("c", "d"))
    assert instance.sandbox.images == ("mswebench/acme_m_ledger:pr-9",) and instance.sandbox.workdir == "/home/ledger"
    assert {"/home/fix.patch", "/home/test.patch"} <= set(instance.sandbox.hidden_paths)
    for name in ("fix.patch", "test.patch"):  # beside an altered test, the tests' own patch tells the true one
        assert any(f"/home/{name}" in command for command in instance.sandbox.setup_commands)
    assert instance.problem_statement == "It fails" and instance.gold_patch and "make test" in script(instance)
    by_them = imported(tmp_path, "Multi-SWE-bench", **tests, **own | {"test_cmd": "bash /home/test-run.sh"})
    assert not any("/home/test.patch" in command for command in by_them.sandbox.setup_commands), "its tests need it"
    alone = imported(tmp_path, "Multi-SWE-bench", **tests, resolved_issues=[], title="T", body="B", org="Acme")
    assert alone.problem_statement == "T\nB", "a row without issues tells its pull request"
    assert alone.sandbox.images == ("mswebench/acme_m_ledger:pr-9",), "Docker's names are lower case"


def test_polybench(tmp_path: Path) -> None:
    """A log parser that the row is given has no effect, since its tests have other columns."""
    file = "FROM maven\nWORKDIR /src\n"
    instance = imported(tmp_path, "SWE-PolyBench", log_parser="parse_log_maven", Dockerfile=file)
    assert (instance.fail_to_pass, instance.pass_to_pass) == (("a.b.CTest",), ())
    assert (instance.sandbox.workdir, instance.language) == ("/src", "java") and "mvn test" in script(instance)
    without = imported(tmp_path, "SWE-PolyBench", Dockerfile="FROM maven\n")
    assert without.sandbox.workdir == "/testbed" and "log_parser" in without.ungradable_because


def test_r2e(tmp_path: Path) -> None:
    """The agent finds the tests, or a row with another number of tests counts as the same."""
    instance = imported(tmp_path, "R2E-Gym", problem_statement="Hello\n[ISSUE]\nIt fails.\n[/ISSUE]\nBye")
    assert instance.problem_statement == "It fails." and instance.sandbox.hidden_paths == ("/r2e",)
    plain = imported(tmp_path, "R2E-Gym", problem_statement="It fails.", commit_hash=None, docker_image="r2e/a:5a")
    assert (plain.problem_statement, plain.instance_id) == ("It fails.", "aiohttp__5a"), "the tag is the commit"
    assert instance.instance_id == "aiohttp__f0d74880deec8fcd982bce639c93c5e130d41198"
    assert isinstance(instance.grader, R2eGrader) and instance.grader.expected == {"t.a": "PASSED"}
    with pytest.raises(RowRejected, match="names no test"):
        imported(tmp_path, "R2E-Gym", expected_output_json="{}")


def test_an_envelope_without_a_row_is_refused(tmp_path: Path) -> None:
    """It is imported as a row of another family that it resembles."""
    with pytest.raises(RowRejected, match="has no instance_dict"):
        imported(tmp_path, "Nemotron SWE (NeMo Gym)", responses_create_params={"input": [], "metadata": {}})


_HEAD = "=========== short test summary info ============\n"
_EXPECTED = {"T.test_a[x - y]": "PASSED", "test_b": "FAILED"}


@pytest.mark.parametrize(
    ("log", "name", "why"),
    [
        (
            f"{_HEAD}PASSED r/t.py::T::test_a[x - y]\nFAILED r/t.py::test_b - assert 1 == 2\n1 failed",
            "resolved",
            "2 tests",
        ),
        (
            f"{_HEAD}\x1b[32mPASSED\x1b[0m r/t.py::\x1b[1mT::test_a[x\x1b[0m\nFAILED t::test_b\r\n",
            "resolved",
            "2 tests",
        ),
        (f"{_HEAD}PASSED t::T::test_a[x\nPASSED t::test_b\n", "unresolved", "test_b is PASSED, not FAILED"),
        (f"{_HEAD}PASSED t::T::test_a[x\n", "unresolved", "test_b is missing, not FAILED"),
        (f"{_HEAD}PASSED t::T::test_a[x\nFAILED t::test_b\nPASSED t::c\n", "unresolved", "c is PASSED, not missing"),
        (
            f"{_HEAD}FAILED t::T::test_a[x\nFAILED t::test_b\n2 failed\nPASSED t::T::test_a[x\n",
            "unresolved",
            "is FAILED, not PASSED",
        ),
        ("2 passed", "no_results", "no summary"),
        (f"{_HEAD}PASSED t::T::test_a[x\nFAILED t::test_b\n{_HEAD}FAILED t::c\n", "no_results", "2 summaries"),
    ],
)
def test_the_summary_of_r2e(log: str, name: str, why: str) -> None:
    """A status is read otherwise than R2E-Gym reads it, or a summary that the code printed is believed."""
    verdict, cause = judged(log, _EXPECTED)
    assert verdict == VerdictName(name) and why in cause, cause
