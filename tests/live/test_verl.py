"""The adapter for current veRL in its real releases, on CPU and without an inference engine, against a real server."""

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT

from . import verl_environment
from .faulty import FAULTS, faulty
from .serving import Server, bash, until

RELEASES = ["0.7.1", "0.9.0", verl_environment.LOCKED, *filter(None, [os.environ.get("SANDBOX_TEST_VERL")])]
"""The last: a folder with the package `verl` of any other revision."""
TOOLS = str(ROOT / "examples" / "verl" / "tools.yaml")
FINISH = "I am done.\n<function=finish>\n</function>"
LEDGER = "samples__ledger-12"
UNKNOWN = "nobody__knows-1"
LOOP = {"_target_": "sandbox_client.verl.SandboxAgentLoop", "max_turns": 4}
TOOL_LOOP = {"_target_": "sandbox_client.verl_tools.SandboxToolAgentLoop"}
SOLVED = {"acc": 1.0, "resolved": 1.0, "masked": 0.0, "f2p": 1.0, "p2p": 1.0}
FAILED = {"acc": 0.0, "resolved": 0.0, "masked": 0.0}


@pytest.fixture(scope="module")
def solve(sample_instances: dict[str, dict]) -> str:
    """A command that earns 1.0."""
    return f"git apply - <<'END_OF_GOLD'\n{sample_instances['ledger']['patch']}END_OF_GOLD"


def hermes(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize("release", RELEASES)
def test_rollouts(live: Server, missing, solve: str, release: str) -> None:
    """In some release a reward, a mask or a session's end is wrong, with either loop or the reward manager."""
    run = f"verl-{RELEASES.index(release)}"
    by_text = [bash("cd /tmp; echo seen-$((40+2)); seq 999"), bash(f"cd -; {solve}"), FINISH]
    calls = [hermes("execute_bash", command="cd /tmp; echo seen-$((40+2)); seq 999")]
    by_tools = [*calls, hermes("execute_bash", command=f"cd -; {solve}"), hermes("finish"), "never"]
    rolls = [
        (LOOP, LEDGER, by_text),
        (LOOP, LEDGER, ["Where is it?", bash("ls"), bash("true"), bash("true"), "never"]),
        (LOOP, LEDGER, [bash("echo waits"), "WAIT"]),
        (LOOP | {"faults": "raise"}, UNKNOWN, [FINISH]),
        (LOOP, "samples__timespan-7", [bash("echo begun"), "LOSE", FINISH]),
        (TOOL_LOOP, LEDGER, by_tools),
        (TOOL_LOOP, LEDGER, ["I call nothing."]),
        (TOOL_LOOP, LEDGER, [hermes("execute_bash", command="echo waits"), "WAIT"]),
        (TOOL_LOOP | {"faults": "raise"}, UNKNOWN, ["I call nothing."]),
        (TOOL_LOOP, "samples__swatch-31", [hermes("execute_bash", command="echo begun"), "LOSE"]),
    ]
    groups = [UNKNOWN, LEDGER, UNKNOWN]
    done = verl_environment.run(
        release,
        "roll_verl",
        {
            "environment": {"SANDBOX_URL": live.url, "SANDBOX_RUN": run},
            "tools": TOOLS,
            "rollouts": [{"loop": loop, "instance_id": name, "policy": texts} for loop, name, texts in rolls],
            "batches": [
                {"loop": LOOP, "instance_ids": groups, "policy": by_text},
                {"loop": TOOL_LOOP, "instance_ids": groups, "policy": by_tools},
            ],
        },
        missing,
    )
    solved, wrong, cut_off, raised, lost, called, silent, cut_off_tools, raised_tools, lost_tools = done["rollouts"]
    assert (cut_off["error"], cut_off_tools["error"]) == ("CancelledError", "CancelledError")
    assert (raised["error"], raised_tools["error"]) == ("RolloutFault", "RolloutFault") and UNKNOWN in raised["detail"]
    for rollout, texts in ((solved, by_text), (called, by_tools[:3])):
        assert (rollout["reward"], rollout["extra"]) == (1.0, SOLVED)
        assert rollout["policy"] == "".join(f"{text}<|im_end|>" for text in texts)
        assert "seen-42" in rollout["shown"] and rollout["logprobs"]
        assert rollout["seen"][2].startswith(rollout["seen"][1]), "the policy saw another past in its third turn"
        assert "\r\n999" in rollout["shown"], "veRL has cut an observation: to 256 characters, or to a prompt's length"
    # "policy": the tokens that are in the loss
    for rollout in (lost, lost_tools):
        assert (rollout["policy"], rollout["reward"], rollout["extra"]["masked"]) == ("", 0.0, 1.0)
        assert len(rollout["seen"]) >= 2, "the fault is to come behind tokens of the policy"
    for rollout, turns in ((wrong, 4), (silent, 1)):
        assert (rollout["reward"], len(rollout["seen"])) == (0.0, turns)
        assert rollout["extra"].items() >= FAILED.items(), "a policy that does nothing is not to be masked"
    for step in done["batches"]:
        # the first sample of a batch decides which columns it has
        assert step["scores"] == step["acc"] == [0.0, 1.0, 0.0] and step["masked"] == [1.0, 0.0, 1.0]
        assert step["pulls"] == [False, True, False], "a masked sample moves the policy"
        assert step["has_logprobs"]
    until(
        lambda: not httpx.get(f"{live.url}/v1/sessions?run={run}&state=live", timeout=30).json(),
        60,
        "a session of a rollout that was cut off ends",
    )


@pytest.fixture
def overrides(tmp_path: Path, live: Server) -> list[str]:
    """The arguments that examples/verl/train.sh passes to veRL, for a model under `tmp_path`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (("python", 'printf "%s\\n" "$@"'), ("sandbox-server", "")):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    said = subprocess.run(
        ["sh", ROOT / "examples" / "verl" / "train.sh", tmp_path / "model"],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "SANDBOX_URL": live.url, "SANDBOX_RUN": "verl-v1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[0] == "-c" and f"'{live.url}'" in said[1] and said[2:4] == ["-m", "verl.trainer.main_ppo"]
    return said[4:]


def test_v1_with_ray(live: Server, missing, solve: str, overrides: list[str]) -> None:
    """Under Ray the service's address does not reach the workers, or what reaches the trainer is wrong or unmasked."""
    job = {
        "overrides": overrides,
        "tools": TOOLS,
        "policy": [bash("echo one"), bash(solve), FINISH],
        "prompts": [
            {"raw_prompt": [{"role": "user", "content": "Mend it."}], "agent_name": "sandbox", "instance_id": name}
            for name in (LEDGER, UNKNOWN)
        ],
        "within_s": 400,
    }
    done = verl_environment.run(verl_environment.LOCKED, "roll_verl_v1", job, missing)
    solved, unknown = done["prompts"]
    assert (solved["status"], solved["scores"], solved["pulls"]) == ("finished", [1.0, 1.0], [True, True])
    assert solved["extra"] == [SOLVED] * 2
    assert (unknown["status"], unknown["scores"], unknown["pulls"]) == ("finished", [0.0, 0.0], [False, False])
    assert [extra["masked"] for extra in unknown["extra"]] == [1.0, 1.0]
    assert done["environment"]["SANDBOX_RUN_LEASE_S"] == "120"
    sessions = httpx.get(f"{live.url}/v1/sessions?run=verl-v1", timeout=30).json()
    assert [session["state"] for session in sessions] == ["ended", "ended"], "not of the run that runtime_env names"


def test_no_solved_rollout_is_lost(serve, missing, solve: str) -> None:
    """A solved rollout gets 0.0 or a mask because of faults of proxies, networks and hosts, or a restart."""
    plan = [*FAULTS, "reset", "cut", "hang"]
    rollouts = len(plan)  # of three sessions, which are asked about at once
    server = serve(reward_wait_s=1)  # so that rewards are answered as pending repeatedly
    begun = [server.begin() for _ in range(3)]
    for sid in begun:
        server.run(sid, solve)
    with faulty(server.url, "/compute_reward", plan) as proxy, socket.create_server(("127.0.0.1", 0)) as frozen:

        def restart() -> None:
            until(lambda: not proxy.plan, 120, "every fault is met")
            server.restart()

        restarting = threading.Thread(target=restart)
        restarting.start()
        job = {
            "environment": {
                "SANDBOX_URL": f"{proxy.url},http://127.0.0.1:{frozen.getsockname()[1]}",
                "SANDBOX_REWARD_ATTEMPT_S": "10",
                "SANDBOX_REWARD_TOTAL_S": "240",
            },
            "tools": None,
            "sids": [begun[number % len(begun)] for number in range(rollouts)],
        }
        done = verl_environment.run(verl_environment.LOCKED, "roll_verl", job, missing)["rewards"]
        restarting.join()
    assert sorted(set(proxy.met)) == sorted(FAULTS)
    assert (done["rewards"], done["masked"]) == ([1.0] * rollouts, [0.0] * rollouts)
    assert done["longest_s"] < 240
