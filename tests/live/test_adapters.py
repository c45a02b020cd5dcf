"""The adapters for other trainers, in the real packages of their own environments, against a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

from .serving import Server

ROLLS = Path(__file__).parent / "environments"
SWE_AGENT = os.environ.get("SANDBOX_TEST_SWE_AGENT", "")
"""A Python that has SWE-agent, which no registry has, and SWE-ReX."""
ON_PATH = (ROOT / "client", ROOT / "examples", ROOT / "examples" / "verifiers")


@pytest.fixture(scope="session")
def roll(missing):
    """roll(name, job): run `roll_<name>.py` on the job in that package's environment; return its result.

    `place`: another environment, and a folder in its `share` that has the package. `python`: one that has it.
    """

    def run(name: str, job: dict[str, Any], place: tuple[str, str] | None = None, python: str = "") -> Any:
        environment, beside = place or (name, "")
        found = ROOT / ".cache" / "sdk" / environment
        python = python or str(found / "bin" / "python")
        if not Path(python).exists():
            missing(f"the environment of {environment} (scripts/environments.sh sdk .cache/sdk)")
        paths = [*([found / "share" / beside] if beside else []), *ON_PATH]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SANDBOX_")}
        done = subprocess.run(
            [python, ROLLS / f"roll_{name}.py"],
            input=json.dumps(job),
            env=clean | {"PYTHONPATH": ":".join(map(str, paths)), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def solve(sample_instances: dict[str, dict]) -> str:
    """A command that earns 1.0."""
    return f"git apply - <<'END_OF_GOLD'\n{sample_instances['ledger']['patch']}END_OF_GOLD"


def call(command: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'bash', 'arguments': {'command': command}})}\n</tool_call>"


FOUND = "samples__locate-1"
ANSWER = "It is here:\n<files>\ntimespan/reader.py\ntimespan/writer.py\n</files>"
PLACES = [
    {"file": "timespan/reader.py", "class_name": None, "function_name": "read"},
    {"file": "timespan/writer.py", "class_name": None, "function_name": None},
]


@pytest.fixture(scope="module")
def skyrl(live: Server, roll) -> Any:
    """The outcome of each of these jobs; all in one process, which takes seconds to start."""
    right = [f"I look.{call('sleep 0.5; echo one')}{call('echo two')}", call("ls"), ANSWER]
    wrong = ["Where could it be?", "<files>\nsetup.py\n</files>"]
    endless = [call("true")] * 9
    config = {"url": live.url, "max_turns": 4}
    jobs = {
        "found": {
            "settings": {"url": live.url, "run": "skyrl", "max_turns": 9},
            "typed": {"max_turns": 4, "faults": None},
            "extras": {"instance_id": FOUND},
            "policies": [right, wrong, endless],
        },
        "unknown": {"config": config, "extras": {"instance_id": "no__such-1"}, "policies": [[ANSWER]]},
        "of another dialect": {
            "settings": {"url": live.url},
            "extras": {"instance_id": "samples__find-1"},
            "policies": [[call("ls")] * 3],
        },
    }
    return roll("skyrl", jobs)


def test_skyrl(live: Server, skyrl) -> None:
    """A rollout ends without its reward, gets another rollout's output, or leaves its session open."""
    done = skyrl["found"]
    first, second, third = done["rollouts"]
    assert first["steps"][0]["observations"] == [
        {
            "role": "user",
            "content": "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>",
        }
    ]
    assert [step["done"] for step in first["steps"]] == [False, False, True]
    assert [step["reward"] for step in first["steps"]] == [0.0, 0.0, 1.0]
    assert "<files>" in second["steps"][0]["observations"][0]["content"]
    assert (second["steps"][-1]["reward"], len(third["steps"])) == (0.0, 4)
    assert third["steps"][-1]["done"] and not third["metrics"]["answered"]
    assert [one["metrics"]["masked"] for one in done["rollouts"]] == [0.0] * 3
    assert [one["metrics"]["reward/multilevel_localization_f1_reward"] for one in done["rollouts"]] == [1.0, 0.0, 0.0]
    assert done["mean"]["turns"] == 3.0
    # SkyRL would encode such a text anew, and train on other tokens than were sampled
    assert {step["postprocessed_action"] for one in done["rollouts"] for step in one["steps"]} == {None}
    for rollout in done["rollouts"]:
        session = live.session(rollout["info"]["sid"])
        assert (session["state"], session["run"]) == ("ended", "skyrl")
    assert live.actions(first["info"]["sid"])[-1]["content"] == ANSWER


def test_skyrl_masks_what_the_service_failed_at(skyrl) -> None:
    """An unknown instance, or a lost sandbox, trains the policy with 0.0."""
    unknown = skyrl["unknown"]
    (step,) = unknown["rollouts"][0]["steps"]
    assert step["done"] and step["metadata"]["mask"] and "unknown_instance" in step["metadata"]["cause"]
    assert unknown["mean"]["masked"] == 1.0


def test_skyrl_masks_an_instance_of_another_dialect(skyrl) -> None:
    """Every call is answered by a reminder, and the rollout trains on that until its turns are used up."""
    (step,) = skyrl["of another dialect"]["rollouts"][0]["steps"]
    assert step["done"] and step["metadata"]["mask"] and "SANDBOX_DIALECT=tool_calls" in step["metadata"]["cause"]


def test_verifiers(live: Server, roll, solve: str) -> None:
    """As for SkyRL, with tool calls as objects."""
    scripts = {
        "right": [
            {
                "text": "I look.",
                "calls": [
                    ["bash", {"command": "sleep 0.5; echo one"}],
                    ["bash", {"command": "echo two", "timeout": 5}],
                    ["grep", {"word": "x"}],
                ],
            },
            {"calls": [["bash", {"command": solve}]]},
            {"text": ANSWER},
        ],
        "called": [{"calls": [["localization_finish", {"locations": PLACES}]]}],
        "talk": [{"text": "Where could it be?"}, {"text": ANSWER}],
        "endless": [{"calls": [["bash", {"command": "true"}]]}] * 9,
        "unknown": [{"text": ANSWER}],
    }
    instances = dict.fromkeys(scripts, FOUND) | {"right": "samples__search-1", "unknown": "no__such-1"}
    done = roll("verifiers", {"url": live.url, "max_turns": 4, "scripts": scripts, "instances": instances})
    rollouts = done["rollouts"]
    assert {tool["name"] for tool in done["tools"]} == {"bash", "localization_finish"}
    replies = [one for one in rollouts["right"]["seen"] if one["role"] == "tool"]
    assert [one["content"] for one in replies[:2]] == ["one", "two"]
    assert replies[2]["content"].startswith("Error: there is no tool 'grep'")
    assert [one["tool_call_id"] for one in replies[:3]] == ["call_0", "call_1", "call_2"]
    assert {name: one["reward"] for name, one in rollouts.items()} == {
        "right": 1.0,  # by its tests, in a container
        "called": 3.0,  # files, modules and entities
        "talk": 1.0,
        "endless": 0.0,
        "unknown": 0.0,
    }
    answered = {rollouts[name]["stop"] for name in ("right", "talk", "called")}
    assert (answered, rollouts["endless"]["stop"]) == ({"has_final_env_response"}, "max_turns_reached")
    assert "<files>" in rollouts["talk"]["seen"][-1]["content"]
    assert rollouts["right"]["error"] is None
    assert rollouts["right"]["grade"]["verdict"] == "resolved"
    assert "InfraError" in str(rollouts["unknown"]["error"]) and "unknown_instance" in str(rollouts["unknown"]["error"])
    for name, one in rollouts.items():
        if name != "unknown":
            assert live.session(one["sid"])["state"] == "ended", name
    assert live.actions(rollouts["right"]["sid"])[-1]["content"] == ANSWER
    assert len(live.actions(rollouts["endless"]["sid"])) == 3  # the last turn's calls are not run


def test_verifiers_v1(live: Server, roll, solve: str) -> None:
    """As for SkyRL, in verifiers 0.4; and a turn of three calls counts as three turns."""
    scripts = {
        "right": [
            {
                "text": "I look.",
                "calls": [
                    ["bash", {"command": "sleep 0.5; echo one"}],
                    ["bash", {"command": "echo two", "timeout": 5}],
                    ["grep", {"word": "x"}],
                ],
            },
            {"calls": [["bash", {"command": solve}]]},
            {"calls": [["submit", {}]]},
        ],
        "called": [{"calls": [["localization_finish", {"locations": PLACES}]]}],
        "talk": [{"text": "Where could it be?"}, {"text": ANSWER}],
        "written": [{"text": f"I look.{call('echo one')}"}, {"text": ANSWER}],
        "endless": [{"calls": [["bash", {"command": "true"}]]}] * 9,
        "unknown": [{"text": ANSWER}],
        "other": [{"calls": [["bash", {"command": "true"}]]}],
    }
    instances = dict.fromkeys(scripts, FOUND)
    instances |= {"right": "samples__search-1", "unknown": "no__such-1", "other": "samples__find-1"}
    tools = ["bash", "localization_finish", "submit"]
    job = {"url": live.url, "max_turns": 4, "scripts": scripts, "instances": instances, "tools": tools}
    rollouts = roll("verifiers_v1", job | {"in_text": ["written"]})["rollouts"]
    replies = [one for one in rollouts["right"]["seen"] if one["role"] == "tool"]
    assert [one["content"] for one in replies[:2]] == ["one", "two"]
    assert replies[2]["content"].startswith("Error: there is no tool 'grep'")
    assert [one["tool_call_id"] for one in replies[:3]] == ["call_0", "call_1", "call_2"]
    assert (rollouts["right"]["tools"], rollouts["written"]["tools"]) == (tools, [])
    assert rollouts["written"]["seen"][-1]["content"] == "<tool_response>\none\n</tool_response>"
    assert {name: one["rewards"].get("reward") for name, one in rollouts.items()} == {
        "right": 1.0,  # by its tests, in a container
        "called": 3.0,  # files, modules and entities
        "talk": 1.0,
        "written": 1.0,
        "endless": 0.0,
        "unknown": None,
        "other": None,
    }
    assert {name for name, one in rollouts.items() if not one["ok"]} == {"unknown", "other"}
    assert "unknown_instance" in rollouts["unknown"]["error"] and "tool_calls" in rollouts["other"]["error"]
    assert rollouts["right"]["grade"]["verdict"] == "resolved" and rollouts["right"]["metrics"]["resolved"] == 1.0
    assert rollouts["called"]["metrics"]["item/multilevel_localization_f1_reward"] == 3.0
    assert [rollouts[name]["turns"] for name in ("right", "called", "talk", "endless")] == [3, 1, 2, 4]
    assert live.session(rollouts["right"]["sid"])["metrics"]["num_turns"] == 3
    for name, one in rollouts.items():
        if name != "unknown":
            assert live.session(one["sid"])["state"] == "ended", name
    assert live.session(rollouts["right"]["sid"])["run"] == "verifiers"


def test_inspect_ai(live: Server, roll, solve: str) -> None:
    """A check of inspect_ai's own list fails, or a sample's score is not what the service grades."""
    scripts = {"right": ["git status --short", solve], "idle": ["true"], "unknown": ["true"]}
    instances = {"right": "samples__ledger-12", "idle": "samples__search-1", "unknown": "no__such-1"}
    box = {
        "image": "sandbox-samples/ledger:latest",
        "user": "nobody",
        "workdir": "/tmp",
    }  # root has a right to all files
    done = roll("inspect_ai", {"url": live.url, "sandbox": box, "scripts": scripts, "instances": instances})
    assert len(done["checks"]) >= 44
    assert {name: told for name, told in done["checks"].items() if told} == {}
    samples = done["samples"]
    assert (samples["right"]["value"], samples["right"]["verdict"]) == (1.0, "resolved")
    assert (samples["idle"]["value"], samples["idle"]["verdict"]) == (0.0, "empty_patch")
    assert samples["unknown"]["value"] is None and "unknown_instance" in samples["unknown"]["error"]
    assert live.session(done["box"])["state"] == "ended"


def test_mini_swe_agent(live: Server, roll, solve: str) -> None:
    """Its environment runs commands otherwise than its own ones do, or a fault of the service is an observation."""
    scripts = {"right": ["echo one; echo two >&2", solve], "unknown": ["true"]}
    instances = {"right": "samples__ledger-12", "unknown": "no__such-1"}
    job = {"url": live.url, "image": "sandbox-samples/ledger:latest", "scripts": scripts, "instances": instances}
    done = roll("mini", job)
    right = done["rollouts"]["right"]
    assert (right["exit_status"], right["verdict"], right["reward"]) == ("Submitted", "resolved", 1.0)
    assert right["submission"].startswith("diff --git a/ledger/")
    assert any("one\ntwo\n" in message["content"] for message in right["messages"])
    assert done["rollouts"]["unknown"]["error"].startswith("UnknownInstance")
    assert done["box"]["told"] == {"output": "/root\nwrong\n", "returncode": 3, "exception_info": ""}
    killed = done["box"]["killed"]
    assert (killed["output"], killed["returncode"]) == ("begun\n", -1) and "killed after 1 s" in killed[
        "exception_info"
    ]
    assert live.session(done["box"]["sid"])["state"] == "ended"


def test_nemo_gym(live: Server, roll) -> None:
    """Its interface does not find our provider, or takes what the service failed at for a command's exit code."""
    job = {"url": live.url, "image": "sandbox-samples/ledger:latest"}
    done = roll("nemo_gym", job, ("nemo_gym", "beside-nemo_gym-0.7.0"))
    box = done["box"]
    assert (box["status"], box["ended"], done["copied"]) == ("running", "stopped", [0, 255])
    assert box["closed"] == ["stopped", "sandbox"], "a sandbox that its own handle has closed"
    assert (box["paused"], box["resumed"]) == ("paused", "é")
    assert box["misdirected"] == "unknown", "a refused request says nothing of the box, which goes on"
    said = {"stdout": "/work/here\n1 2\né", "stderr": "wrong\n", "return_code": 3, "error_type": None}
    assert box["done"] == said
    assert (box["user"]["stdout"], box["user"]["return_code"]) == ("nobody\n/tmp\n", 0)
    assert (box["slow"]["stdout"], box["slow"]["return_code"], box["slow"]["error_type"]) == ("begun\n", 125, "timeout")
    assert (box["lost"]["return_code"], box["lost"]["error_type"]) == (125, "sandbox")
    assert "no/such:image" in done["refused"]
    assert (live.session(box["sid"])["state"], live.session(box["sid"])["run"]) == ("ended", "nemo")


def test_trl(live: Server, roll, tmp_path: Path) -> None:
    """Its trainer gets another rollout's reward, or trains on a rollout that the service could not run."""
    job = {"url": live.url, "folder": str(tmp_path), "instances": ["samples__search-1", "no__such-1"]}
    graded, masked = roll("trl", job, ("verl", "beside-verl-trl"))
    assert graded["rewards"] == [1.0, 0.0] and graded["advantages"][0] > 0 > graded["advantages"][1]
    assert (masked["rewards"], masked["advantages"]) == ([None, None], [0.0, 0.0])
    assert [live.session(sid)["state"] for sid in graded["sids"]] == ["ended", "ended"]
    assert [one["outcome"] for one in live.actions(graded["sids"][1])] == ["finished"]


def test_swerex(live: Server, roll, solve: str) -> None:
    """A shell forgets or makes up what a terminal's would keep, or an error is told otherwise than by SWE-ReX's own."""
    keep = "cd /usr; A='x y'; f() { echo f $A; }; export PATH=/opt/tools/bin:$PATH; (exit 3)"
    commands: list[dict[str, Any]] = [
        {"command": keep},
        {"command": "echo $?; pwd\nf; greet; tool 1; sleep 600 &"},
        {"command": "echo [$A]; pwd", "session": "other"},
        {"command": "unset A HOME; set -u; cd /; exit 4"},
        {"command": "echo ${A-unset} ${HOME-unset}; printf '\\n \\033[1mb\\033[0m\\r\\n'; (echo $nothing)"},
        {"command": "if; then"},
        {"command": "cd /tmp; echo begun; sleep 60", "timeout": 1},
        {"command": "pwd; cat; false", "check": "raise", "error_msg": "no"},
        {"command": "false", "check": "ignore"},
        {"command": "python3", "is_interactive_command": True},
    ]
    job = {"url": live.url, "image": "sandbox-samples/ledger:latest", "commands": commands}
    done = roll("swerex", job | {"instance": "samples__ledger-12", "patch": solve})
    box, session = done["box"], done["session"]
    assert (box["before"]["error"], done["unknown"]) == ("DeploymentNotStartedError", "UnknownInstance")
    assert (box["opened"]["output"], box["again"]["error"]) == ("read\n", "SessionExistsError")
    first, kept, other, left, cleared, wrong, killed, failed, ignored, terminal = box["said"]
    assert (first["output"], first["exit_code"]) == ("", 3)
    assert (kept["output"], kept["exit_code"]) == ("3\n/usr\nf x y\nhello\ntool 1\n", 0)
    assert other["output"].startswith("[]\n/") and "/usr" not in other["output"]
    assert left["exit_code"] == 4
    assert (
        cleared["output"] == "unset unset\n\n b\nbash: line 1: nothing: unbound variable\n"
        and cleared["exit_code"] == 1
    )
    assert wrong["error"] == "BashIncorrectSyntaxError" and "syntax error" in wrong["extra"]["bash_stderr"]
    assert killed["error"] == "CommandTimeoutError"
    assert (
        failed["error"] == "NonZeroExitCodeError"
        and failed["message"].startswith("no: ")
        and "'/\\n'" in failed["message"]
    )
    assert (ignored["exit_code"], terminal["error"]) == (None, "SwerexException")
    assert (box["interrupted"]["output"], box["gone"]["error"]) == ("", "SessionDoesNotExistError")
    assert (box["read"]["content"], box["missing"]["error"]) == ("é\n", "FileNotFoundError")
    assert box["executed"] == {"stdout": "1\n/usr\n", "stderr": "wrong\n", "exit_code": 0}
    assert box["merged"] == {"stdout": "wrong\n", "stderr": "", "exit_code": 3}
    assert (box["checked"]["error"], box["slow"]["error"]) == ("NonZeroExitCodeError", "CommandTimeoutError")
    assert live.session(box["sid"])["state"] == "ended"
    assert (session["verdict"], session["reward"], session["said"]["exit_code"]) == ("resolved", 1.0, 0)
    assert live.session(session["sid"])["run"] == "swerex"


def test_the_client_itself_needs_none_of_them() -> None:
    """`import sandbox_client` takes seconds, or fails where a trainer's package is not installed."""
    ours = "sandbox_client.blocking, sandbox_client.rollouts, sandbox_client.trl"
    code = f"import sys, {ours}; print(sorted({{'pydantic', 'torch', 'verifiers', 'skyrl_gym'}} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "client")}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "[]\n"


@pytest.mark.skipif(not SWE_AGENT, reason="SANDBOX_TEST_SWE_AGENT names no Python with SWE-agent")
@pytest.mark.timeout(600)
def test_swe_agent(live: Server, roll, solve: str, sample_instances: dict[str, dict]) -> None:
    """Its own agent, with its default configuration and tools, does not come to a graded submission."""
    calls = [("bash", {"command": "pwd"}), ("bash", {"command": solve}), ("submit", {}), ("submit", {})]
    job = {"url": live.url, "row": sample_instances["ledger"], "calls": calls}
    done = roll("swe_agent", job, python=SWE_AGENT)
    assert (done["exit_status"], done["verdict"], done["reward"]) == ("submitted", "resolved", 1.0)
    assert done["trajectory"][0].strip() == "/testbed"
