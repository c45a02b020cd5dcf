"""OpenEnv against a real server, by its own client under both names of its package."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.conftest import ROOT

from .serving import SCRIPTED, Server, bash, until

SDKS = ("openenv", "openenv-older")
ROLL = Path(__file__).parent / "environments" / "roll_openenv.py"
LEDGER = "samples__ledger-12"


@pytest.fixture
def roll(missing: Callable[[str], None]) -> Callable[..., list[dict[str, Any]]]:
    """roll(*episodes, sdk="openenv"): what one release of the client was told in each."""

    def run(*episodes: dict[str, Any], sdk: str = "openenv") -> list[dict[str, Any]]:
        python = ROOT / ".cache" / "sdk" / sdk / "bin" / "python"
        if not python.exists():
            missing(f"the environment of {sdk} (scripts/environments.sh sdk .cache/sdk)")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SANDBOX_")}
        done = subprocess.run(
            [python, ROLL],
            input=json.dumps(episodes),
            env=clean,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return list(json.loads(done.stdout))

    return run


def call(tool: str, **arguments: object) -> tuple[str, dict[str, object]]:
    return "step", {"type": "call_tool", "tool_name": tool, "arguments": arguments}


@pytest.mark.parametrize("sdk", SDKS)
def test_episodes(live: Server, roll, sample_instances: dict[str, dict], sdk: str) -> None:
    """A trainer's environment cannot start, act or earn, or a session outlives its websocket."""
    solve = f"cd /testbed; git apply - <<'END_OF_GOLD'\n{sample_instances['ledger']['patch']}END_OF_GOLD"
    solved = {
        "url": f"{live.url}/openenv",
        "messages": [
            call("execute_bash", command="true"),
            ("reset", {}),
            ("reset", {"instance": "no__such-1", "seed": 1}),
            ("reset", {"instance": LEDGER, "seed": 1, "episode_id": "mine"}),
            call("execute_bash", command="cd /tmp; kept=yes"),
            ("step", {"content": bash("echo $kept $PWD")}),
            call("grep", word="x"),
            ("step", {"type": "list_tools"}),
            ("step", {"nothing": "known"}),
            call("execute_bash", command=solve),
            call("submit"),
            ("step", {"type": "reward"}),
            call("execute_bash", command="true"),
        ],
    }
    found = {
        "url": f"{live.url}/openenv/instances/samples__locate-1",
        "messages": [
            ("reset", {}),
            call("bash", command="echo 'Your answer is recorded.'"),
            ("step", {"content": "It is here:\n<files>\ntimespan/reader.py\ntimespan/writer.py\n</files>"}),
        ],
    }
    left = {"url": f"{live.url}/openenv/instances/{LEDGER}", "messages": [("reset", {}), ("reset", {})]}
    first, second, third = roll(solved, found, left, sdk=sdk)
    early, lacking, unknown, begun, _, kept, wrong, tools, odd, _, over, again, late = first["told"]
    assert "SESSION_ERROR" in early["raised"] and "VALIDATION_ERROR" in lacking["raised"]
    assert "unknown_instance" in unknown["raised"] and "call_tool" in odd["raised"]
    assert "Splitting" in begun["observation"]["content"] and (begun["reward"], begun["done"]) == (None, False)
    assert "yes /tmp" in kept["observation"]["content"]
    assert wrong["observation"]["error"]["error_type"] == "invalid_args" and not wrong["done"]
    assert [one["name"] for one in tools["observation"]["tools"]] == [
        "execute_bash",
        "bash",
        "str_replace_editor",
        "submit",
    ]
    for done in (over, again, late):
        metadata = done["observation"]["metadata"]
        assert (done["reward"], done["done"], metadata["verdict"], metadata["mask"]) == (1.0, True, "resolved", False)
    sid = begun["observation"]["sid"]
    assert (first["state"]["episode_id"], first["state"]["step_count"], first["state"]["state"]) == (sid, 5, "ended")
    assert [one["seq"] for one in live.actions(sid)] == [1, 2, 3, 4, 5]
    assert [one["done"] for one in second["told"]] == [False, False, True]
    assert second["told"][2]["reward"] == 1.0
    sids = [one["observation"]["sid"] for one in third["told"]]
    until(lambda: all(live.session(one)["state"] == "ended" for one in sids), 30, "ended with the websocket")
    assert sids[0] != sids[1] and live.session(sids[0])["instance_id"] == LEDGER


def test_a_session_of_the_trainers(live: Server, roll) -> None:
    """A websocket that is only attached ends a session which its trainer goes on with."""
    sid = live.begin()
    attached = {
        "url": f"{live.url}/openenv/sessions/{sid}",
        "messages": [("reset", {}), call("bash", command="echo a")],
    }
    (seen,) = roll(attached)
    assert (seen["told"][0]["observation"]["sid"], seen["told"][1]["observation"]["result"]) == (sid, "a")
    assert live.session(sid)["state"] == "live"


def test_websockets_that_break(serve: Callable[..., Server]) -> None:
    """A client that dies leaves its session running for hours; a server that restarts ends all of them."""
    server = serve(api_keys="alice=alices-own-secret,an-operators-secret", openenv_idle_s=8, openenv_connections=2)
    at = f"{server.url.replace('http', 'ws')}/openenv/instances/{SCRIPTED}/ws"
    key = {"X-API-Key": "alices-own-secret"}

    def begin(websocket: Any) -> str:
        websocket.send('{"type": "reset"}')
        return str(json.loads(websocket.recv(timeout=60))["data"]["observation"]["sid"])

    def state(sid: str) -> str:
        told = httpx.get(f"{server.url}/v1/sessions/{sid}", headers={"X-API-Key": "an-operators-secret"}, timeout=30)
        return str(told.json()["state"])

    with connect(at, additional_headers=key) as cut, connect(at, additional_headers=key):
        with connect(at, additional_headers=key) as third:
            assert json.loads(third.recv(timeout=30))["data"]["code"] == "CAPACITY_REACHED"
        kept = begin(cut)
        server.restart(signal.SIGTERM)
    with connect(at, additional_headers=key) as broken:
        one = begin(broken)
        # while a message is being answered, the websocket is not idle
        broken.send(json.dumps({"type": "step", "data": {"tool_name": "bash", "arguments": {"command": "sleep 90"}}}))
        broken.socket.close()
        until(lambda: state(one) == "ended", 60, "ended though its command still ran")
    with connect(at, additional_headers=key) as idle:
        two = begin(idle)
        assert json.loads(idle.recv(timeout=60))["data"]["code"] == "SESSION_ERROR"
        until(lambda: state(two) == "ended", 60, "ended for it was idle")
    assert state(kept) == "live"
    assert [one for one in server.complaints() if one["level"] == "error"] == []


def test_the_example(live: Server, missing: Callable[[str], None]) -> None:
    """What the documents tell a newcomer to run does not run."""
    python = ROOT / ".cache" / "sdk" / "openenv" / "bin" / "python"
    if not python.exists():
        missing("the environment of openenv (scripts/environments.sh sdk .cache/sdk)")
    example = ROOT / "examples" / "agents" / "openenv_episode.py"
    told = subprocess.check_output([python, example, live.url], text=True, timeout=200)
    assert told.splitlines()[-1] == "rewards [1.0, 0.0]"
