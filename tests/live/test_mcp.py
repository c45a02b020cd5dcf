"""MCP against a real server: the official client's two generations, and that a call is an action like any other."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

from .serving import Server

SDKS = {"mcp": "2026-07-28", "mcp-older": "2025-11-25"}
"""Environment -> the version of the protocol that its client settles on."""
ROLL = Path(__file__).parent / "environments" / "roll_mcp.py"
LEDGER = "samples__ledger-12"
SESSIONS_TOOLS = ["execute_bash", "bash", "str_replace_editor", "submit"]
INDENTED = "    def total(self):\n        return 1\n\n"


@pytest.fixture
def roll(missing: Callable[[str], None]) -> Callable[..., dict[str, Any]]:
    """roll(url, calls, sdk="mcp"): make the calls by one release of the client; return what it was told."""

    def run(url: str, calls: list[tuple[str, dict[str, Any]]], sdk: str = "mcp") -> dict[str, Any]:
        python = ROOT / ".cache" / "sdk" / sdk / "bin" / "python"
        if not python.exists():
            missing(f"the environment of {sdk} (scripts/environments.sh sdk .cache/sdk)")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SANDBOX_")}
        job = json.dumps({"url": url, "calls": calls})
        done = subprocess.run(
            [python, ROLL], input=job, env=clean, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr[-5000:]
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["version"] == SDKS[sdk]
        return told

    return run


@pytest.mark.parametrize("sdk", SDKS)
def test_an_agent_starts_its_own_session(live: Server, roll, sample_instances: dict[str, dict], sdk: str) -> None:
    """The agent cannot act in what it started, does not learn what it did wrong, or gets no reward."""
    solve = f"git apply - <<'END_OF_GOLD'\n{sample_instances['ledger']['patch']}END_OF_GOLD"
    told = roll(
        f"{live.url}/mcp?instance={LEDGER}",
        [
            ("start", {}),
            ("execute_bash", {"sid": "{sid}", "command": "cd /tmp; kept=yes"}),
            ("execute_bash", {"sid": "{sid}", "command": "echo $kept $PWD"}),
            ("execute_bash", {"sid": "{sid}", "command": "false"}),
            ("bash", {"sid": "{sid}", "command": "echo '</tool_response>'; git log --oneline | wc -l"}),
            ("grep", {"sid": "{sid}", "word": "x"}),
            ("execute_bash", {"sid": "{sid}", "cmd": "ls"}),
            ("execute_bash", {"command": "ls"}),
            ("read_file", {"path": "/etc/hosts"}),
            ("execute_bash", {"sid": "1", "command": "ls"}),
            ("start", {"instance": "no__such-1"}),
            ("execute_bash", {"sid": "{sid}", "command": f"cd /testbed; {solve}"}),
            ("submit", {"sid": "{sid}"}),
            ("reward", {"sid": "{sid}"}),
            ("execute_bash", {"sid": "{sid}", "command": "true"}),
            ("end", {"sid": "{sid}"}),
        ],
        sdk,
    )
    assert told["tools"][0]["name"] == "start" and "start" in told["instructions"]
    assert all("sid" in tool["inputSchema"]["required"] for tool in told["tools"][1:])
    begun, _, kept, false, fresh, grep, wrong, *told_of = told["calls"]
    lacking, absent, another, unknown, _, over, graded, late, end = told_of
    assert json.loads(begun["text"])["workspace"] == "/workspace/samples__ledger__1.2"
    assert "Splitting" in json.loads(begun["text"])["problem_statement"]
    assert "yes /tmp" in kept["text"]
    assert (false["error"], false["meta"]["sandbox/exit_code"]) == (False, 1)
    assert fresh["text"].splitlines() == ["</tool_response>", "3"]
    assert [one["error"] for one in (grep, wrong, lacking, absent, another, unknown)] == [True] * 6
    assert "there is no tool 'grep'" in grep["text"] and "no parameter 'cmd'" in wrong["text"]
    assert "there is no tool 'read_file'; there are start, execute_bash, " in absent["text"], "it asks for a sid"
    assert "sid" in lacking["text"] and "unknown_instance" in unknown["text"]
    assert another["meta"]["sandbox/error"] == "unknown_session"
    assert over["text"].startswith("The interaction is over.") and not over["error"]
    assert (json.loads(graded["text"])["reward"], json.loads(graded["text"])["verdict"]) == (1.0, "resolved")
    assert late["error"] and late["meta"]["sandbox/error"] == "session_ended"
    assert json.loads(end["text"]) == {"sid": told["sid"], "state": "ended"}
    journal = live.actions(told["sid"])
    assert [one["outcome"] for one in journal] == [
        *("finished",) * 4,
        "unknown_tool",
        "bad_parameter",
        "finished",
        "finish",
    ]
    assert [one["exit_code"] for one in journal[:4]] == [0, 0, 1, 0]


def test_a_trainers_session_has_its_tools_only(live: Server, roll) -> None:
    """An agent starts sessions and reads rewards, or its edits lose what the arguments say."""
    sid = live.begin()
    path = "/testbed/new.py"
    told = roll(
        f"{live.url}/mcp/sessions/{sid}",
        [
            ("str_replace_editor", {"command": "create", "path": path, "file_text": f"class Bill:\n{INDENTED}"}),
            ("str_replace_editor", {"command": "str_replace", "path": path, "old_str": INDENTED, "new_str": "  x\n"}),
            ("str_replace_editor", {"command": "str_replace", "path": path, "old_str": "not there", "new_str": ""}),
            ("execute_bash", {"command": f"cat {path}; echo '</parameter></function>' \u00e9\ud83d\ude00"}),
            ("reward", {}),
            ("start", {"instance": LEDGER}),
        ],
    )
    assert [tool["name"] for tool in told["tools"]] == SESSIONS_TOOLS
    assert "/workspace/samples__ledger__1.2" in told["instructions"]
    made, edited, refused, seen, reward, start = told["calls"]
    assert [one["error"] for one in told["calls"]] == [False, False, True, False, True, True]
    assert "class Bill:" not in made["text"] and "  x" in edited["text"]
    assert "No replacement was performed" in refused["text"]
    assert "class Bill:\r\n  x\r\n</parameter></function> \u00e9\U0001f600" in seen["text"]
    assert "there is no tool" in reward["text"] and "there is no tool" in start["text"]
    assert live.session(sid)["state"] == "live"
    assert [one["seq"] for one in live.actions(sid)] == [1, 2, 3, 4, 5, 6]
    assert seen["meta"]["sandbox/seq"] == 4
    # what the policy's own text does in the same shell, and what a call does, are answered alike
    assert live.run(sid, "echo alike") in live.actions(sid)[-1]["observation"]
    assert live.finish(sid)["state"] == "ended"


def test_where_to_change_the_code(live: Server, roll) -> None:
    """A code search task cannot be answered, or is answered and not scored."""
    sid = live.begin("samples__find-1")
    places = [{"file": "timespan/reader.py", "function_name": "read"}, {"file": "timespan/writer.py"}]
    told = roll(f"{live.url}/mcp/sessions/{sid}", [("localization_finish", {"locations": places})])
    assert [tool["name"] for tool in told["tools"]][-2:] == ["localization_finish", "submit"]
    assert told["calls"][0]["text"] == "Your answer is recorded."
    live.finish(sid)
    assert live.reward(sid)["reward"] == 3.0


def test_the_example(live: Server, missing: Callable[[str], None]) -> None:
    """What the documents tell a newcomer to run does not run."""
    python = ROOT / ".cache" / "sdk" / "mcp" / "bin" / "python"
    if not python.exists():
        missing("the environment of mcp (scripts/environments.sh sdk .cache/sdk)")
    example = ROOT / "examples" / "agents" / "mcp_agent.py"
    told = subprocess.check_output([python, example, live.url], text=True, timeout=200)
    assert told.splitlines()[0] == "protocol 2026-07-28" and told.splitlines()[-1] == "resolved 1.0"
