"""SWE-agent on a sample, in a session of the service, graded by it.

    git clone https://github.com/SWE-agent/SWE-agent && pip install -e ./SWE-agent './client[swerex]'
    python examples/swe_agent.py http://localhost:5000     # a server that has the samples

Its configuration is SWE-agent's config/default.yaml. Its model is SWE-agent's predetermined one, which plays the
sample's own fix; leave out the line with `PredeterminedTestModel` and name a model in `settings` for a real one.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml
from sandbox_client.swerex import SandboxDeployment
from sweagent import CONFIG_DIR
from sweagent.agent.agents import DefaultAgent, DefaultAgentConfig
from sweagent.agent.models import PredeterminedTestModel
from sweagent.agent.problem_statement import TextProblemStatement
from sweagent.environment.repo import PreExistingRepoConfig
from sweagent.environment.swe_env import SWEEnv
from sweagent.run.run_single import RunSingle

ROWS = Path(__file__).parent / "instances.jsonl"


def solve(row: dict, calls: Sequence[tuple[str, dict]], url: str | None = None) -> dict:
    """The agent's own trajectory and the service's reward for a row, played by these tool calls."""
    deployment = SandboxDeployment(instance=row["instance_id"], url=url)
    env = SWEEnv(
        deployment=deployment,
        repo=PreExistingRepoConfig(repo_name="testbed", reset=False),
        post_startup_commands=[],
    )
    settings = yaml.safe_load((CONFIG_DIR / "default.yaml").read_text())["agent"]
    agent = DefaultAgent.from_config(DefaultAgentConfig(**settings, model={"name": "instant_empty_submit"}))
    agent.model = PredeterminedTestModel([_message(name, arguments) for name, arguments in calls])
    problem = TextProblemStatement(text=row["problem_statement"], id=row["instance_id"])
    with tempfile.TemporaryDirectory() as folder:
        RunSingle(env, agent, problem, output_dir=Path(folder)).run()
    reward = asyncio.run(deployment.reward())
    return {"trajectory": agent.trajectory, "exit_status": agent.info.get("exit_status"), **reward.to_wire()}


def _message(name: str, arguments: dict) -> dict:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"message": "", "tool_calls": [call]}


def main() -> None:
    """One rollout."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url", help="base URL of the service")
    rows = {row["instance_id"]: row for row in map(json.loads, ROWS.read_text().splitlines())}
    row = rows["samples__ledger-12"]
    gold = f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"
    calls = [("bash", {"command": "ls"}), ("bash", {"command": gold}), ("submit", {}), ("submit", {})]
    done = solve(row, calls, options.parse_args().url)
    print(f"{row['instance_id']}: {done['exit_status']}, {done['verdict']}, reward {done['reward']}: {done['cause']}")


if __name__ == "__main__":
    main()
