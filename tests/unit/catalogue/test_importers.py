"""Import of each family's rows, and requirements on whole files."""

import json
from pathlib import Path

import pytest

from sandbox_server.catalogue import importing
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import (
    CodeTask,
    F2pScriptGrader,
    GitSource,
    ScriptGrader,
    SwebenchGrader,
    SweproGrader,
    TaskInstance,
    instance_hash,
)
from sandbox_server.catalogue.localization.task import localized
from sandbox_server.errors import GraderBroken, MalformedRequest, RowRejected

ADDS = """\
diff --git a/tests/test_new.py b/tests/test_new.py
new file mode 100644
--- /dev/null
+++ b/tests/test_new.py
@@ -0,0 +1 @@
+x
"""
EDITS = """\
diff --git a/tests/test_a.py b/tests/test_a.py
--- a/tests/test_a.py
+++ b/tests/test_a.py
@@ -1 +1,2 @@
 a
+b
"""
BENCH = {
    "instance_id": "Owner__Repo-1",
    "repo": "Owner/Repo",
    "version": "1.0",
    "base_commit": "abc",
    "patch": "gold",
    "test_patch": EDITS + ADDS,
    "problem_statement": "It fails.",
    "hints_text": "a hint",
    "FAIL_TO_PASS": '["t::a"]',
    "PASS_TO_PASS": "['t::b', \"t::c\"]",
}
EVAL_SCRIPT = "#!/bin/bash\n: '>>>>> Start Test Output'\nrun\n: '>>>>> End Test Output'\n"
FIVE = {
    **BENCH,
    "image": "swebench/sweb.eval.x86_64.owner_1776_repo-1:latest",
    "eval_script": EVAL_SCRIPT,
    "log_parser": "parse_log_django",
    "eval_type": "pass_and_fail",
}


def imported(tmp_path: Path, *rows: dict[str, object]) -> list[TaskInstance]:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_instances(file, swebench4_dir=tmp_path / "no swebench here")


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
        ({"log_parser": None, "test_cmd": "pytest"}, "log_parser is missing"),
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
    (odd,) = imported(tmp_path, {**row, "before_repo_set_cmd": "cp -r /tests ."})
    assert odd.grader is None and "cp -r /tests ." in odd.ungradable_because


SLIME = {
    "prompt": "fix it",
    "label": "slime-1",
    "metadata": {"image": "i:1", "workdir": "/w", "problem_statement": "bug"},
}


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
    with pytest.raises(RowRejected, match=r"line 2: of no family we know .*; its keys: bar, foo"):
        imported(tmp_path, FIVE, {"foo": 1, "bar": 2})


def test_no_row_is_of_two_families() -> None:
    """Which of two importers takes a row must not depend on the order of files in a folder."""
    rows = [BENCH, FIVE, SLIME, {**BENCH, "repo": "python/mypy", "version": "0.0", "environment_setup_commit": "x"}]
    for row in rows:
        for general in (False, True):
            matching = [name for name, it in importing._IMPORTERS.items() if it.general is general and it.matches(row)]
            assert len(matching) <= 1


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
        ({"base_commit": "main"}, "no full commit id"),
        ({"repo": "../../etc"}, "no name such as owner/name"),
        ({"repository": "ext::sh -c true"}, "transport of its own"),
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
