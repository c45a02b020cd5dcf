"""Import of slime's rows."""

from pathlib import Path

import pytest

from sandbox_server.catalogue.instance import (
    F2pScriptGrader,
    ScriptGrader,
    SwebenchGrader,
    SweproGrader,
)
from sandbox_server.errors import GraderBroken, RowRejected

from .samples import FIVE, SLIME, imported


@pytest.mark.parametrize(
    ("metadata", "grader"),
    [
        ({"eval_cmd": "pytest -x"}, ScriptGrader(command="pytest -x")),
        ({"remote_env_info": {"f2p_script": "import sys"}}, F2pScriptGrader(script="import sys")),
        ({"remote_env_info": '{"f2p_script": "import sys"}'}, F2pScriptGrader(script="import sys")),
        ({"eval_cmd": "a", "remote_env_info": {"f2p_script": "b"}}, ScriptGrader(command="a")),
        ({"swepro": {"run_script_path": "/x"}, "eval_cmd": "a"}, None),  # no required test: always 0.0
        ({"remote_env_info": {"FAIL_TO_PASS": '["a"]'}}, None),
        ({}, None),
    ],
)
def test_slime(tmp_path: Path, metadata: dict[str, object], grader: object) -> None:
    """slime's order of graders decides which one gives the reward."""
    (found,) = imported(tmp_path, {**SLIME, "metadata": {**SLIME["metadata"], **metadata}})
    assert found.grader == grader
    assert bool(found.ungradable_because) == (grader is None)
    assert found.instance_id == "slime-1" and found.sandbox.images == ("i:1",) and found.sandbox.workdir == "/w"
    assert found.problem_statement == "bug"


def test_a_long_label_names_no_instance(tmp_path: Path) -> None:
    """slime takes it for an answer: as a name, rows with equal answers would be one instance."""
    row = {"prompt": "bug", "metadata": {"image": "i"}}
    assert imported(tmp_path, {**row, "label": "x" * 255})[0].instance_id == "x" * 255
    with pytest.raises(RowRejected, match="nor label names the instance"):
        imported(tmp_path, {**row, "label": "x" * 256})


@pytest.mark.parametrize("commands", [["cd x", "touch y"], "cd x\\ntouch y", "cd x\ntouch y\n"])
def test_slime_pre_commands(tmp_path: Path, commands: object) -> None:
    """They change the tree of both containers; without them no diff applies."""
    for metadata in ({"pre_commands": commands}, {"remote_env_info": {"pre_commands": commands}}):
        (found,) = imported(tmp_path, {**SLIME, "metadata": {"image": "i", **metadata}})
        assert found.sandbox.setup_commands == ("set -e\ncd x\ntouch y",)


SWEPRO = {
    "run_script_path": "assets/run.sh",
    "parser_script_path": "assets/parser.py",
    "selected_test_files": ["tests/a.py", "tests/b c.py"],
    "before_repo_set_cmd": "git reset --hard abc\ngit checkout def0 -- tests/a.py",
    "fail_to_pass": ["t | a"],
    "pass_to_pass": ["t | b"],
}


def test_slime_swepro(tmp_path: Path) -> None:
    """Its scripts are read at import, from beside the file, because the grading server may be another machine."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/run.sh").write_text("echo $1\n")
    (tmp_path / "assets/parser.py").write_text("pass\n")
    metadata = {"image": "i", "swepro": SWEPRO, "pre_commands": ["touch x"], "eval_cmd": "not this one"}
    (found,) = imported(tmp_path, {**SLIME, "metadata": metadata})
    assert found.grader == SweproGrader(
        run_script="echo $1\n",
        parser_script="pass\n",
        selected_test_files=("tests/a.py", "tests/b c.py"),
        restore_tests="git checkout def0 -- tests/a.py",
    )
    assert (found.fail_to_pass, found.pass_to_pass) == (("t | a",), ("t | b",))
    # the whole command changes both trees, before pre_commands, as in slime
    assert found.sandbox.setup_commands == (f"set -e\n{SWEPRO['before_repo_set_cmd']}", "set -e\ntouch x")
    assert (found.sandbox.workdir, found.eval_timeout_s) == ("/testbed", 600.0)


@pytest.mark.parametrize(
    ("last", "restores"),
    [
        ("git checkout 0abc12 -- a/t.py b", True),
        ("git checkout v9.9 tests", True),
        ("git checkout 0abc12", False),  # would remove the patch
        ("git reset --hard 0abc12", False),
        ("git checkout -f 0abc12", False),
        ("git clean -fd", False),
    ],
)
def test_only_a_checkout_of_tests_is_run_over_the_patch(tmp_path: Path, last: str, restores: bool) -> None:
    """Any other command might undo the patch, so that a correct fix would be graded as empty."""
    for name in ("run.sh", "parser.py"):
        (tmp_path / name).write_text("x")
    swepro = {**SWEPRO, "run_script_path": "run.sh", "parser_script_path": str(tmp_path / "parser.py")}
    row = {**SLIME, "metadata": {"image": "i", "swepro": {**swepro, "before_repo_set_cmd": f"git fetch\n{last}\n"}}}
    (found,) = imported(tmp_path, row)
    assert isinstance(found.grader, SweproGrader) and found.grader.restore_tests == (last if restores else "")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read .*run.sh, which the row names: No such file"),
        (b"\xff", "not UTF-8"),
        (b"x" * 2**21, "1 MiB"),
    ],
)
def test_slime_assets_that_are_wrong(tmp_path: Path, content: bytes | None, why: str) -> None:
    """Reported at import with the line, not when the first rollout is graded."""
    (tmp_path / "assets").mkdir()
    if content is not None:
        (tmp_path / "assets/run.sh").write_bytes(content)
    with pytest.raises(RowRejected, match=f"line 2: .*{why}"):
        imported(tmp_path, SLIME, {"label": "b", "metadata": {"image": "i", "swepro": SWEPRO}})


def test_slime_swebench(tmp_path: Path) -> None:
    """Graded as by the benchmark: with the row's own script, or the one that swebench 4.1.0 makes from the row."""
    remote = {key: value for key, value in FIVE.items() if key not in ("image", "problem_statement")}
    row = {"prompt": "p", "label": "l", "metadata": {"remote_env_info": {**remote, "image": "bench:1"}}}
    (found,) = imported(tmp_path, row)
    assert isinstance(found.grader, SwebenchGrader) and found.grader.new_test_files == ("tests/test_new.py",)
    assert (found.instance_id, found.dataset) == ("Owner__Repo-1", "slime")
    assert (found.sandbox.images, found.sandbox.workdir) == (("bench:1",), "/testbed")
    assert (found.fail_to_pass, found.problem_statement, found.eval_timeout_s) == (("t::a",), "p", 600.0)
    old = {key: value for key, value in remote.items() if key not in ("eval_script", "log_parser", "eval_type")}
    with pytest.raises(GraderBroken, match="make setup"):
        imported(tmp_path, {**row, "metadata": {"image": "i", "remote_env_info": old}})
    # another grader comes first, as in slime's default protocol
    (other,) = imported(tmp_path, {**row, "metadata": {"image": "i", "eval_cmd": "x", "remote_env_info": old}})
    assert other.grader == ScriptGrader(command="x")


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("text", "text"),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "user", "content": "v"}], "u"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], "a"),
        ([], ""),
        (None, ""),
    ],
)
def test_slime_prompts(tmp_path: Path, prompt: object, problem: str) -> None:
    """The problem statement is taken from the prompt if the metadata has none."""
    (found,) = imported(tmp_path, {"prompt": prompt, "label": "l", "metadata": {"image": "i", "eval_cmd": "x"}})
    assert found.problem_statement == problem


def test_slime_images(tmp_path: Path) -> None:
    """A row without an image is refused with its line, since it could never be started."""
    (found,) = imported(tmp_path, {"label": "l", "metadata": {"remote_env_info": {"image_url": "u:1"}}})
    assert found.sandbox.images == ("u:1",)
    with pytest.raises(RowRejected, match="line 1: image is missing"):
        imported(tmp_path, {"label": "l", "metadata": {"eval_cmd": "x"}})
    with pytest.raises(RowRejected, match="names the instance"):
        imported(tmp_path, {"label": "x" * 300, "metadata": {"image": "i"}})
