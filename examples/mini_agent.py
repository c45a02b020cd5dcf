"""mini-swe-agent on a sample, in a session of the service, graded by it.

    python examples/mini_agent.py http://localhost:5000     # a server that has the samples

Its model is mini-swe-agent's deterministic one, which plays the sample's own fix. Needs
`./client[mini]`.
"""

import argparse
import json
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output
from sandbox_client.mini import SandboxEnvironment

ROWS = Path(__file__).parent / "instances.jsonl"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && git diff HEAD"


def solve(row: dict, commands: list[str], url: str | None = None) -> dict:
    """The agent's own end and the service's reward for a row, played by these commands."""
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    environment = SandboxEnvironment(instance=row["instance_id"], url=url, timeout=90)
    agent = DefaultAgent(
        model, environment, system_template="You fix bugs.", instance_template="{{task}}", step_limit=20, cost_limit=0
    )
    try:
        end = agent.run(row["problem_statement"])
        return {**end, "messages": agent.messages, **environment.reward().to_wire()}
    finally:
        environment.cleanup()


def main() -> None:
    """One rollout."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url", help="base URL of the service")
    rows = {row["instance_id"]: row for row in map(json.loads, ROWS.read_text().splitlines())}
    row = rows["samples__ledger-12"]
    gold = f"git apply - <<'END_OF_PATCH'\n{row['patch']}END_OF_PATCH"
    done = solve(row, ["ls", gold, SUBMIT], options.parse_args().url)
    print(f"{row['instance_id']}: {done['exit_status']}, {done['verdict']}, reward {done['reward']}: {done['cause']}")


if __name__ == "__main__":
    main()
