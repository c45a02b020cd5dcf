"""Import of each family's rows, and requirements on whole files; slime and code search have files of their own."""

import json
from pathlib import Path

import pytest

from sandbox_server.catalogue import importing
from sandbox_server.catalogue.instance import (
    CodeTask,
    ScriptGrader,
    SwebenchGrader,
    SweproGrader,
    instance_hash,
)
from sandbox_server.errors import GraderBroken, RowRejected

from .samples import ADDS, BENCH, EVAL_SCRIPT, FIVE, SLIME, imported


def test_known_hashes() -> None:
    """The trainer computes the same hashes; a single different bit would make every task unknown."""
    assert instance_hash("django__django-11099") == 1922554310125897704
    assert instance_hash("astropy__astropy-12907") == 1735636947331729184


def test_our_own_schema(tmp_path: Path) -> None:
    """Fields are imported unchanged."""
    row = {
        "instance_id": "own-1",
        "repo": "o/r",
        "sandbox": {"images": ["i:1"], "workdir": "/src", "env": {"A": "b"}},
        "dialect": "code",
        "code": {"path": "m.py", "test_command": "pytest"},
        "grader": {"kind": "script", "command": "pytest"},
        "files": {"t.py": "x"},
    }
    (found,) = imported(tmp_path, row)
    assert found.grader == ScriptGrader(command="pytest")
    assert found.sandbox.env == {"A": "b"} and found.files == {"t.py": "x"}
    assert len(found.row_sha256) == 64
    (ungradable,) = imported(tmp_path, {**row, "grader": None})
    assert ungradable.grader is None and ungradable.ungradable_because
    round_trip = json.loads(found.model_dump_json())
    assert imported(tmp_path, round_trip) == [found]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"typo": 1}, "typo: Extra inputs"),
        ({"sandbox": {"images": []}}, "sandbox.images is empty"),
        ({"grader": {"kind": "magic"}}, "grader"),
        ({"instance_id": "a\nb"}, "control characters"),
        ({"instance_id": ""}, "instance_id"),
        ({"repo": "a\0b"}, "repo holds a NUL"),
        ({"problem_statement": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_own_rows_that_are_wrong(tmp_path: Path, change: dict[str, object], why: str) -> None:
    """Errors name line and field, at import instead of at the first rollout."""
    good = {"instance_id": "own-1", "repo": "o/r", "sandbox": {"images": ["i"]}}
    with pytest.raises(RowRejected, match=why) as caught:
        imported(tmp_path, {**good, "instance_id": "other"}, {**good, **change})
    assert caught.value.line == 2


def test_a_script_without_markers_cannot_be_graded(tmp_path: Path) -> None:
    """The tests' part of the output cannot be found, so the instance is ungradable instead of failing each grading."""
    (found,) = imported(tmp_path, {**FIVE, "eval_script": "pytest\n"})
    assert found.grader is None and ">>>>> Start Test Output" in found.ungradable_because


def test_complete_rows(tmp_path: Path) -> None:
    """A 5.x row is graded by its own script, unchanged, without swebench 4.1.0."""
    (found,) = imported(tmp_path, FIVE)
    assert found.grader == SwebenchGrader(
        eval_script=EVAL_SCRIPT, log_parser="parse_log_django", new_test_files=("tests/test_new.py",)
    )
    assert found.sandbox.images == (
        "swebench/sweb.eval.x86_64.owner_1776_repo-1:latest",
        "sweb.eval.x86_64.owner_1776_repo-1:latest",
        "sweb.eval.x86_64.owner__repo-1:latest",
    )
    assert found.fail_to_pass == ("t::a",) and found.pass_to_pass == ("t::b", "t::c")
    assert found.gold_patch == "gold" and found.hints == "a hint" and found.conversion == ""
    assert found.workspace == "/workspace/Owner__Repo__1.0"


def test_rows_with_our_own_keys(tmp_path: Path) -> None:
    """With these keys an operator makes a repository gradable that the benchmark does not know."""
    own = {
        "image": "mine:1",
        "workdir": "/src",
        "dialect": "code",
        "code": {"path": "m.py", "test_command": "t"},
        "eval_timeout_s": 60,
        "activate": ". /venv/bin/activate",
        "install": "make",
        "test_cmd": "pytest -rA {test_files}",
        "log_parser": "parse_log_pytest",
    }
    (found,) = imported(tmp_path, {**BENCH, **own})
    assert found.sandbox.images == ("mine:1",) and found.sandbox.workdir == "/src"
    assert found.sandbox.activate == ". /venv/bin/activate"
    assert found.dialect == "code" and found.code == CodeTask(path="m.py", test_command="t")
    assert found.eval_timeout_s == 60
    assert isinstance(found.grader, SwebenchGrader)
    assert found.grader.new_test_files == ("tests/test_new.py",)
    assert "\npytest -rA tests/test_a.py tests/test_new.py\n" in found.grader.eval_script
    assert "\n. /venv/bin/activate\ncd /src\n" in found.grader.eval_script
    assert "\nmake\n" in found.grader.eval_script
    (commands,) = imported(tmp_path, {**BENCH, **own, "test_cmd": ["one", "two"]})
    assert isinstance(commands.grader, SwebenchGrader) and "\none\ntwo\n" in commands.grader.eval_script


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"log_parser": "parse_log_pytst"}, "parse_log_pytst"),
        ({"log_parser": None, "test_cmd": "pytest"}, "test_cmd needs log_parser"),
        ({"test_patch": "no diff"}, "test_patch: no readable diff"),
        ({"FAIL_TO_PASS": "t::a"}, "FAIL_TO_PASS is not a list"),
        ({"eval_type": "maybe"}, "eval_type"),
        ({"eval_timeout_s": "soon"}, "eval_timeout_s"),
        ({"code": {"path": "x"}}, "test_command"),
        ({"instance_id": None}, "instance_id is missing"),
        ({"image": ["a"]}, "image is not a text"),
    ],
)
def test_benchmark_rows_that_are_wrong(tmp_path: Path, change: dict[str, object], why: str) -> None:
    """A misspelt parser found at grading time would cost a whole batch its rewards."""
    with pytest.raises(RowRejected, match=why) as caught:
        imported(tmp_path, {**FIVE, "instance_id": "first"}, {**FIVE, **change})
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS is empty"),
        ({"image_assets": '{"test_patch": [{"path": "a.png", "url": "u"}]}'}, "image assets"),
    ],
)
def test_rows_that_no_verdict_could_be_true_of(tmp_path: Path, change: dict[str, object], why: str) -> None:
    """Imported so that rollouts run, but ungradable, because a score would be meaningless."""
    (found,) = imported(tmp_path, {**FIVE, **change})
    assert found.grader is None and why in found.ungradable_because


def test_old_rows_say_what_they_need(tmp_path: Path) -> None:
    """Without swebench 4.1.0 the import must say how to get it, not fail in a subprocess."""
    with pytest.raises(GraderBroken, match="make setup"):
        imported(tmp_path, BENCH)


def test_swegym(tmp_path: Path) -> None:
    """Its repositories are not in swebench's tables; its images have other names."""
    row = {**BENCH, "instance_id": "getmoto__moto-7365", "repo": "getmoto/moto"}
    (found,) = imported(tmp_path, row)
    assert found.sandbox.images == ("xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7365:latest",)
    assert found.grader is None and "fork" in found.ungradable_because and found.dataset == "swegym"
    (skyrl,) = imported(tmp_path, {**row, "eval_script": "x"})  # its recipe takes the exit code of a checkout
    assert skyrl.grader is None
    recipe = {"test_cmd": "pytest -rA", "log_parser": "parse_log_pytest"}
    (graded,) = imported(tmp_path, {**row, **recipe})
    assert isinstance(graded.grader, SwebenchGrader) and graded.sandbox.images == found.sandbox.images


def test_swedev(tmp_path: Path) -> None:
    """Generated tests in new files, no P2P, no published way to run them."""
    row = {
        **BENCH,
        "version": "0.0",
        "environment_setup_commit": "",
        "test_patch": ADDS.replace("tests/test_new.py", "swedev_test_1.py"),
        "PASS_TO_PASS": [],
    }
    (found,) = imported(tmp_path, row)
    assert found.grader is None and "test_cmd" in found.ungradable_because and found.dataset == "swedev"
    own = {"image": "mine:1", "test_cmd": "pytest --no-header -rA {test_files}", "log_parser": "parse_log_pytest"}
    (graded,) = imported(tmp_path, {**row, **own})
    assert isinstance(graded.grader, SwebenchGrader)
    assert "\npytest --no-header -rA swedev_test_1.py\n" in graded.grader.eval_script
    assert graded.grader.new_test_files == ("swedev_test_1.py",)
    with pytest.raises(RowRejected, match="a trajectory"):
        imported(tmp_path, {"traj_id": "1", "messages": [], "instance_id": "x"})


def test_swebench_pro(tmp_path: Path) -> None:
    """Its lists are Python literals; its scripts are in the benchmark's repository, not in the rows."""
    row = {
        "instance_id": "instance_o__r-abc-vnan",
        "repo": "o/r",
        "base_commit": "abc",
        "problem_statement": "p",
        "before_repo_set_cmd": "git reset --hard abc\ngit checkout x -- t.py",
        "selected_test_files_to_run": "['t.py']",
        "fail_to_pass": "['t | a']",
        "pass_to_pass": "[]",
        "dockerhub_tag": "o.r-" + "x" * 200,
        "repo_language": "go",
    }
    (found,) = imported(tmp_path, row)
    assert found.grader is None and "run_scripts/instance_o__r-abc-vnan" in found.ungradable_because
    assert found.sandbox.images == ("jefzda/sweap-images:" + ("o.r-" + "x" * 200)[:128],)
    assert found.sandbox.workdir == "/app" and found.language == "go" and found.fail_to_pass == ("t | a",)
    scripts = tmp_path / "run_scripts" / "instance_o__r-abc-vnan"
    scripts.mkdir(parents=True)
    (scripts / "run_script.sh").write_text("run\n")
    (scripts / "parser.py").write_text("parse\n")
    (graded,) = imported(tmp_path, row)
    assert graded.grader == SweproGrader(
        run_script="run\n",
        parser_script="parse\n",
        selected_test_files=("t.py",),
        restore_tests="git checkout x -- t.py",
    )
    assert graded.sandbox.setup_commands == ()  # the benchmark's own agents do not see the tests
    (nothing,) = imported(tmp_path, {**row, "fail_to_pass": "[]"})
    assert nothing.grader is None and "doing nothing would count as resolved" in nothing.ungradable_because
    (odd,) = imported(tmp_path, {**row, "before_repo_set_cmd": "cp -r /tests ."})
    assert odd.grader is None and "cp -r /tests ." in odd.ungradable_because


def test_a_file_may_mix_families_and_keeps_its_order(tmp_path: Path) -> None:
    """Instances keep the file's order, so that reports can be compared with it."""
    gym = {**BENCH, "instance_id": "g", "repo": "python/mypy"}
    found = imported(tmp_path, {**FIVE, "instance_id": "b"}, SLIME, gym, {**FIVE, "instance_id": "a"})
    assert [it.instance_id for it in found] == ["b", "slime-1", "g", "a"]


def test_an_id_twice_names_both_lines(tmp_path: Path) -> None:
    """The second would silently replace the first."""
    with pytest.raises(RowRejected, match="line 3: 'Owner__Repo-1' is on line 1 already"):
        imported(tmp_path, FIVE, SLIME, {**FIVE, "patch": "other"})


def test_a_row_of_nobody_is_refused(tmp_path: Path) -> None:
    """The error lists the row's keys, because usually it is the wrong file."""
    with pytest.raises(RowRejected, match=r"line 2: its keys fit no known family .*: bar, foo"):
        imported(tmp_path, FIVE, {"foo": 1, "bar": 2})


def test_no_row_is_of_two_families() -> None:
    """Which of two importers takes a row must not depend on the order of files in a folder."""
    rows = [BENCH, FIVE, SLIME, {**BENCH, "repo": "python/mypy", "version": "0.0", "environment_setup_commit": "x"}]
    for row in rows:
        for general in (False, True):
            matching = [name for name, it in importing._IMPORTERS.items() if it.general is general and it.matches(row)]
            assert len(matching) <= 1
