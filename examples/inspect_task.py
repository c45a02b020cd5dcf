"""The samples as a task of inspect_ai, in sandboxes of the service and graded by it.

    export SANDBOX_URL=http://localhost:5000            # a server that has the samples
    python examples/scripted_policy.py &                # in place of a model
    export SCRIPTED_BASE_URL=http://127.0.0.1:8000/v1 SCRIPTED_API_KEY=none
    inspect eval examples/inspect_task.py --model openai-api/scripted/policy

Needs `./client[inspect]` and, for this kind of model, `openai`.
"""

import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.tool import bash
from sandbox_client.inspect_ai import graded

ROWS = Path(__file__).parent / "instances.jsonl"


@task
def sandbox_swe(rows: str = str(ROWS)) -> Task:
    """Each row is a sample, each sample a session."""
    samples = [
        Sample(input=row["problem_statement"], id=row["instance_id"], metadata={"instance_id": row["instance_id"]})
        for row in map(json.loads, Path(rows).read_text().splitlines())
    ]
    return Task(
        dataset=samples,
        solver=react(tools=[bash(timeout=90)]),
        scorer=graded(),
        sandbox="sandbox_service",
        fail_on_error=False,
    )
