"""SWE-agent on a sample, in a session of the service, graded by it.

    python examples/agents/swe_agent.py http://localhost:5000     # a server that has the samples

Its model is SWE-agent's own for tests, which plays the sample's fix; its tools are its own too. Needs
`./client[swerex]` and SWE-agent from its repository, which is not on PyPI.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from sandbox_client.swerex import SandboxDeployment
from sweagent import TOOLS_DIR
from sweagent.agent.agents import DefaultAgent, TemplateConfig
from sweagent.agent.history_processors import DefaultHistoryProcessor
from sweagent.agent.models import PredeterminedTestModel
from sweagent.agent.problem_statement import TextProblemStatement
from sweagent.environment.repo import PreExistingRepoConfig
from sweagent.environment.swe_env import SWEEnv
from sweagent.run.run_single import RunSingle
from sweagent.tools.bundle import Bundle
from sweagent.tools.parsing import ThoughtActionParser
from sweagent.tools.tools import ToolConfig, ToolHandler

ROWS = Path(__file__).parents[1] / "instances.jsonl"
BUNDLES = ("registry", "windowed", "submit")


def turn(command: str) -> str:
    """A turn of the model: a thought, and a command."""
    return f"I go on.\n```\n{command}\n```"


def main() -> None:
    """One rollout."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url", help="base URL of the service")
    rows = {row["instance_id"]: row for row in map(json.loads, ROWS.read_text().splitlines())}
    row = rows["samples__ledger-12"]
    fix = f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"
    deployment = SandboxDeployment(instance=row["instance_id"], url=options.parse_args().url)
    repository = PreExistingRepoConfig(repo_name="testbed", reset=False)
    tools = ToolConfig(
        bundles=[Bundle(path=TOOLS_DIR / name) for name in BUNDLES], parse_function=ThoughtActionParser()
    )
    agent = DefaultAgent(
        templates=TemplateConfig(system_template="You fix bugs.", instance_template="{{problem_statement}}"),
        tools=ToolHandler(tools),
        history_processors=[DefaultHistoryProcessor()],
        model=PredeterminedTestModel([turn("ls"), turn(fix), turn("submit")]),
    )
    problem = TextProblemStatement(text=row["problem_statement"], id=row["instance_id"])
    with tempfile.TemporaryDirectory() as folder:
        RunSingle(
            SWEEnv(deployment=deployment, repo=repository, post_startup_commands=[]),
            agent,
            problem,
            output_dir=Path(folder),
        ).run()
    reward = asyncio.run(deployment.reward())
    print(
        f"{row['instance_id']}: {agent.info['exit_status']}, {reward.verdict}, reward {reward.reward}: {reward.cause}"
    )


if __name__ == "__main__":
    main()
