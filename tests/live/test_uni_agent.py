"""The adapter for Uni-Agent in the real one, which no package registry has: SANDBOX_TEST_UNI_AGENT names its folder."""

import os

import httpx
import pytest

from . import verl_environment
from .serving import Server, until


def test_uni_agent(live: Server, sample_instances: dict[str, dict]) -> None:
    """An episode's reward differs from the service's, its session stays open, or output or file content is lost."""
    uni_agent, release = os.environ.get("SANDBOX_TEST_UNI_AGENT"), os.environ.get("SANDBOX_TEST_VERL")
    if not uni_agent or not release:
        pytest.skip("SANDBOX_TEST_UNI_AGENT and SANDBOX_TEST_VERL name no folders with Uni-Agent and veRL's main")
    gold = sample_instances["ledger"]["patch"]
    solve = [("shell", {"command": "cd / && cd - && export PLACE=$PWD"})]
    solve_by_file = [("str_replace_editor", {"command": "create", "path": "/tmp/gold.patch", "file_text": gold})]
    apply = [
        ("shell", {"command": "cd /tmp"}),
        ("shell", {"command": "cd $PLACE; git apply /tmp/gold.patch && echo ok-$?"}),
    ]
    done = verl_environment.run(
        release,
        "roll_uni_agent",
        {
            "environment": {"SANDBOX_URL": live.url, "SANDBOX_RUN": "uni-agent"},
            "command_timeout_s": 6,
            "episodes": [
                {"instance_id": "samples__ledger-12", "turns": [solve, solve_by_file, apply, [("submit", {})]]},
                {"instance_id": "samples__ledger-12", "turns": [[("shell", {"command": "ls"})], []]},
                {"instance_id": "samples__ledger-12", "turns": [solve, "WAIT"]},
                {"instance_id": "nobody__knows-1", "turns": [[]]},
            ],
            "sandboxes": [
                {
                    "provider": "sandbox_session",
                    "sandbox_kwargs": {"instance": "samples__ledger-12", "command_timeout_s": 6},
                },
                {"provider": "sandbox_box", "image": "sandbox-samples/ledger:latest", "runtime_timeout": 300},
            ],
        },
        pytest.skip,
        folders=[uni_agent],
    )
    solved, idle, cut_off, unknown = done["episodes"]
    assert (solved["reward"], solved["accuracy"], solved["finished"]) == (1.0, 1.0, True)
    assert "ok-0" in solved["tools"][-2] and "ok-0" not in solved["tools"][0]
    assert (idle["reward"], idle["finished"]) == (0.0, True)
    assert cut_off["error"] == "CancelledError"
    assert unknown["error"] == "UnknownInstance", "an episode that the service failed under is to be dropped"
    for sandbox in done["sandboxes"]:
        assert sandbox["same"] and sandbox["empty"] and "absent" in sandbox["absent"]
        assert sandbox["kept"] == ["/\n*-1-a b-given\nalias-1-a b-given\n", 3]
        assert sandbox["failed"] == 1 and "so far" in sandbox["cut"] and sandbox["late"] == -1
        assert sandbox["after"] == "/\nstill-1-a b-given\n"
    until(
        lambda: not httpx.get(f"{live.url}/v1/sessions?run=uni-agent&state=live", timeout=30).json(),
        60,
        "sessions and boxes of episodes end with them",
    )
