"""One row of each data set that people train on, with its published columns and short texts, and what becomes of it."""

import json
from collections.abc import Mapping
from pathlib import Path

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.localization.task import localized
from sandbox_server.errors import RowRejected
from tests.unit.catalogue.samples import EDITS

Row = dict[str, object]

_SEARCH = "localization"
_OPTION = f", with `--family {_SEARCH}`"
_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_PATCH = "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-a\n+b\n"


def _bench(instance_id: str, repo: str, version: str, **others: object) -> Row:
    """The columns of SWE-bench."""
    return {
        "repo": repo,
        "instance_id": instance_id,
        "base_commit": _COMMIT,
        "patch": _PATCH,
        "test_patch": EDITS,
        "problem_statement": "It fails.",
        "hints_text": "",
        "created_at": "2024-03-06T10:00:00Z",
        "version": version,
        "FAIL_TO_PASS": ["t::a"],
        "PASS_TO_PASS": ["t::b"],
        **others,
    }


_REBENCH = _bench(
    "acme__ledger-7",
    "acme/ledger",
    "7",
    language="go",
    image_name="docker.io/swerebenchv2/acme-ledger:7",
    install_config={
        "install": ["go mod download"],
        "test_cmd": "go test -v ./...",
        "log_parser": "parse_log_gotest",
    },
    interface="",
    license="MIT",
    meta={"num_modified_files": 1},
    pr_description="",
)

_LIVE = {
    name: value
    for name, value in _bench(
        "acme__ledger-11",
        "acme/ledger",
        "",
        pull_number="11",
        issue_numbers=["10"],
        all_hints_text="",
        commit_urls=["https://github.com/acme/ledger/commit/0123456"],
        commit_url="https://github.com/acme/ledger/tree/0123456",
        test_cmds=["pytest -rA"],
        log_parser="pytest",
        difficulty={"files": 1, "hunks": 1, "lines": 2},
    ).items()
    if name != "version"
}

ROWS: Mapping[str, Row] = {
    "SWE-bench Multilingual": _bench("redis__redis-13115", "redis/redis", "13115"),
    "SWE-Gym": _bench("getmoto__moto-7365", "getmoto/moto", "5.0"),
    "SWE-rebench V2": _REBENCH,
    "SWE-bench-Live": _LIVE,
    "SWE-bench-Live MultiLang": _LIVE
    | {
        "rebuild_cmds": ["cargo build"],
        "test_cmds": ["cargo test > log.txt"],
        "print_cmds": ["cat log.txt"],
        "log_parser": "def parser(log: str) -> dict[str, str]:\n    return {}\n",
        "docker_image": "starryzhang/sweb.eval.x86_64.acme_1776_ledger-11",
    },
    "SWE-PolyBench": {
        name: value
        for name, value in _bench(
            "acme__ledger-8",
            "acme/ledger",
            "",
            language="Java",
            Dockerfile="FROM maven:3.9",
            F2P='["a.b.CTest"]',
            P2P="[]",
            F2F="[]",
            test_command="mvn test",
            task_category="Bug Fix",
            is_no_nodes=False,
            is_func_only=True,
            is_class_only=False,
            is_mixed=False,
            num_func_changes=1,
            num_class_changes=0,
            num_nodes=1,
            is_single_func=True,
            is_single_class=False,
            modified_nodes="[]",
        ).items()
        if name not in {"FAIL_TO_PASS", "PASS_TO_PASS", "hints_text", "version"}
    },
    "Multi-SWE-bench": {
        "org": "acme",
        "repo": "ledger",
        "number": 9,
        "state": "closed",
        "title": "Fix it",
        "body": "",
        "base": {"label": "acme:main", "ref": "main", "sha": _COMMIT},
        "resolved_issues": [{"number": 1, "title": "It fails", "body": ""}],
        "fix_patch": _PATCH,
        "test_patch": EDITS,
        "fixed_tests": {"a": {"run": "PASS", "test": "FAIL", "fix": "PASS"}},
        "p2p_tests": {},
        "f2p_tests": {"a": {"run": "PASS", "test": "FAIL", "fix": "PASS"}},
        "s2p_tests": {},
        "n2p_tests": {},
        "run_result": {"passed_count": 1},
        "test_patch_result": {"passed_count": 0},
        "fix_patch_result": {"passed_count": 1},
        "instance_id": "acme__ledger-9",
    },
    "SWE-smith": {
        "instance_id": "oauthlib__oauthlib.1fd52536.combine_file__09vlzwgc",
        "patch": _PATCH,
        "FAIL_TO_PASS": ["t::a"],
        "PASS_TO_PASS": ["t::b"],
        "image_name": "swebench/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536",
        "repo": "swesmith/oauthlib__oauthlib.1fd52536",
        "problem_statement": "It fails.",
    },
    "R2E-Gym": {
        "repo_name": "aiohttp",
        "docker_image": "namanjain12/aiohttp_final:f0d74880deec8fcd982bce639c93c5e130d41198",
        "commit_hash": "f0d74880deec8fcd982bce639c93c5e130d41198",
        "parsed_commit_content": "{}",
        "execution_result_content": "{}",
        "modified_files": ["aiohttp/client.py"],
        "modified_entity_summaries": [],
        "relevant_files": ["aiohttp/client.py"],
        "num_non_test_files": 1,
        "num_non_test_func_methods": 1,
        "num_non_test_lines": 2,
        "prompt": "",
        "problem_statement": "It fails.",
        "expected_output_json": '{"t.a": "PASSED"}',
    },
    "Nemotron SWE (NeMo Gym)": {
        "responses_create_params": {
            "input": [],
            "metadata": {
                "instance_id": "acme__ledger-10",
                "base_commit": _COMMIT,
                "dataset_name": "nebius/SWE-rebench-V2",
                "split": "train",
                "problem_statement": "It fails.",
                "golden_patch": _PATCH,
                "instance_dict": json.dumps(_REBENCH | {"instance_id": "acme__ledger-10"}),
            },
            "model": "model",
            "temperature": 1.0,
        },
        "agent_ref": {"type": "responses_api_agents", "name": "swe_agents"},
    },
}


def table(folder: Path, swebench4_dir: Path) -> str:
    """The table of docs/instances.md; `folder` is for files, `swebench4_dir` as for `read_instances`."""
    lines = ["| data set | `instances import` | graded by tests | code search |", "|---|---|---|---|"]
    for name, row in ROWS.items():
        file = folder / "row.json"
        file.write_text(json.dumps(row))
        plain = _imported(file, swebench4_dir, family="")
        searched = _searched(plain, "") or _searched(_imported(file, swebench4_dir, family=_SEARCH), _OPTION)
        cells = [name, plain if isinstance(plain, str) else "yes", _graded(plain), searched or "no"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _imported(file: Path, swebench4_dir: Path, *, family: str) -> TaskInstance | str:
    """The row's instance, or why there is none."""
    try:
        return read_instances(file, swebench4_dir=swebench4_dir, family=family)[0]
    except RowRejected as error:
        return f"no: {error.detail.removeprefix('line 1: ').partition(' (')[0]}"


def _graded(instance: TaskInstance | str) -> str:
    if isinstance(instance, str):
        return "no"
    if instance.grader is None:
        return f"no: {instance.ungradable_because.rstrip('.')}"
    return f"yes, after conversion by {instance.conversion}" if instance.conversion else "yes"


def _searched(instance: TaskInstance | str, option: str) -> str:
    """How it becomes a task of code search; "" if it does not."""
    if isinstance(instance, str):
        return ""
    try:
        task = localized(instance, None).localization
    except UnreadablePatch:
        return ""
    return f"yes{option}" if task is not None and task.truth.files else ""
