"""Code search from end to end: rows, a data set, instances, sessions, answers, rewards."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.parquet
import pytest

from sandbox_server.cli.demo_search import Script, drive, scripts
from tests.conftest import ROOT
from tests.documents import blocks, learn

from .serving import Server

TOUCHING, LETTERS, CENTURY = (f"samples__almanac-{name}" for name in ("touching", "letters", "century"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the samples' repository and rows."""
    folder = tmp_path_factory.mktemp("search")
    subprocess.run([sys.executable, ROOT / "examples" / "build_search.py", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def server(built: Path, sample_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose instances came through a data set; the base image of the samples has what they search with."""
    settings = {
        "SANDBOX_REPOSITORY_URL": f"{built}/{{repo}}",
        "SANDBOX_REPOSITORY_FOLDERS": str(built),
        "SANDBOX_LOCALIZATION_REWARDS": "tool_use_capped",
        "SANDBOX_SEARCH_IMAGE": "sandbox-samples/base:latest",
    }
    server = Server(tmp_path_factory.mktemp("server"), built / "rows.jsonl", settings)
    rows, out = str(built / "rows.jsonl"), str(built / "out")
    told = server.cli("dataset", "build", "--input", rows, "--output", out, "--mirrors", "--split=0")
    assert told == f"{out}/train.parquet: 3 rows\n{out}/validation.parquet: 0 rows\n"
    options = ("--family=localization", "--localization", "--mirrors")
    told = server.cli("instances", "import", f"{out}/train.parquet", *options)
    assert told == f"{out}/train.parquet: 0 new, 3 updated, 0 unchanged\n"
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_the_data_set_has_every_level(server: Server, built: Path) -> None:
    """Without the mirrors' trees there are only files; a patch that brings the bug is told by its own side."""
    rows = {row["instance_id"]: row for row in pyarrow.parquet.read_table(built / "out" / "train.parquet").to_pylist()}
    assert {name: (row["entities"], row["missing"]) for name, row in rows.items()} == {
        TOUCHING: (["almanac/days.py:Span.overlaps", "almanac/moon.py:full_moons"], []),
        LETTERS: (["almanac/report/sheet.py:write", "almanac/report/table.py:Table.widths"], []),
        CENTURY: (["almanac/days.py:is_leap"], []),
    }
    truth = json.loads(server.cli("instances", "show", CENTURY, "--json"))["localization"]["truth"]
    assert (truth["modules"], truth["lines"]) == (["almanac/days.py:is_leap"], {"almanac/days.py": [[9, 9]]})


@pytest.mark.parametrize("number", range(3))
def test_a_scripted_rollout_earns_what_it_should(server: Server, built: Path, number: int) -> None:
    """The rewards are the demo's numbers, each the sum of its items."""
    script: Script = scripts(ROOT / "examples" / "search", built / "rows.jsonl")[number]
    sid = server.begin(script.instance_id)
    for commands in script.turns:
        calls = [{"function": {"name": "bash", "arguments": {"command": command}}} for command in commands]
        observation = server.say(sid, json.dumps(calls))["content"]
        assert observation.count("<tool_response>\n") == len(commands)
    server.say(sid, script.answer)
    got = server.reward(sid)
    assert got["reward"] == pytest.approx(script.total) and got["mask"] is False
    assert sum(item["value"] * item["weight"] for item in got["items"]) == pytest.approx(script.total)
    assert got["verdict"] == ("resolved" if script.instance_id == TOUCHING else "unresolved")


def test_the_demo_prints_what_the_document_shows(
    server: Server, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/code-search.md shows items of a reward that the demo has no more."""
    (shown,) = [block for block in blocks("docs/code-search.md", "# Code search") if block.language == "text"]
    found = scripts(ROOT / "examples" / "search", built / "rows.jsonl")
    (script,) = [one for one in found if one.instance_id == LETTERS]
    with httpx.Client(base_url=server.url, timeout=300.0, trust_env=False) as client:
        drive(client, script)
    # the samples' image has no `rg`, which the demo notes behind the total
    learn(f"{shown.text.partition(chr(10) * 2)[0]}...", capsys.readouterr().out, {})


def test_a_session_sees_the_bug_and_nothing_later(server: Server) -> None:
    """The patch that brings the bug shows in a diff, or the fix in the history."""
    sid = server.begin(CENTURY)
    commands = ["git log --all --oneline | wc -l", "git status --short", "sed -n 9p almanac/days.py"]
    answer = server.post(f"/v1/sessions/{sid}/exec", {"commands": commands}).json()
    assert [result["stdout"] for result in answer["results"]] == ["1\n", "", "    return year % 4 == 0\n"]
    server.say(sid, "```\nalmanac/days.py\nfunction: is_leap\n```")
    got = server.reward(sid)
    assert {item["fn"]: item["value"] for item in got["items"]} == {
        "tool_use_reward": pytest.approx(3 / 5),
        "turn_efficiency": 1.0,
        "multilevel_localization_f1_reward": 3.0,
    }
