"""inspect_ai's own list of what a sandbox must do, and an evaluation: `roll_inspect_ai.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client and examples on PYTHONPATH. The policy is the mock model.
"""

import asyncio
import json
import os
import sys
import tempfile

JOB = json.load(sys.stdin)
os.environ.pop("SANDBOX_URL", None)

import inspect_task  # noqa: E402  # what it imports reads the environment
from inspect_ai import eval as evaluate  # noqa: E402
from inspect_ai import task_with  # noqa: E402
from inspect_ai.model import ModelOutput, ModelUsage, get_model  # noqa: E402
from inspect_ai.util._sandbox import self_check  # noqa: E402
from sandbox_client.inspect_ai import SandboxServiceConfig, ServiceSandbox  # noqa: E402


async def checked(name: str, sandbox: ServiceSandbox) -> str:
    """ "" if the check passes, else what it found."""
    try:
        await getattr(self_check, name)(sandbox)
    except Exception as error:  # noqa: BLE001  # a check may fail in any way
        return f"{type(error).__name__}: {error}"[:500]
    return ""


async def checks(wanted: dict) -> dict:
    """All checks in one sandbox: those that wait for seconds at once, beside the others one after the other."""
    config = SandboxServiceConfig(**wanted, url=JOB["url"])
    sandboxes = await ServiceSandbox.sample_init("self_check", config, {})
    sandbox = sandboxes["default"].as_type(ServiceSandbox)
    waiting = [name for name in self_check.__all__ if name.startswith("test_exec_timeout")]
    told: dict[str, str] = {}

    async def in_turn() -> None:
        for name in self_check.__all__:
            if name not in waiting:
                told[name] = await checked(name, sandbox)

    _, *results = await asyncio.gather(in_turn(), *(checked(name, sandbox) for name in waiting))
    await ServiceSandbox.sample_cleanup("self_check", config, sandboxes, False)
    return {"checks": told | dict(zip(waiting, results, strict=True)), "box": sandbox.inside.sid}


def policy(messages: list, *_: object) -> ModelOutput:
    """Runs the sample's command, then submits."""
    told = sum(message.role == "assistant" for message in messages)
    name = next(message.text for message in messages if message.role == "user").strip()
    if told < len(JOB["scripts"][name]):
        said = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": JOB["scripts"][name][told]})
    else:
        said = ModelOutput.for_tool_call("mockllm/model", "submit", {"answer": "done"})
    said.usage = ModelUsage()  # without it the mock model counts tokens, by a vocabulary from another host
    return said


def graded() -> dict[str, dict]:
    """The samples' scores and errors; a sample's input is its script's name."""
    with tempfile.TemporaryDirectory() as folder:
        rows = f"{folder}/rows.jsonl"
        with open(rows, "w") as file:
            for name, instance in JOB["instances"].items():
                file.write(json.dumps({"instance_id": instance, "problem_statement": name}) + "\n")
        model = get_model("mockllm/model", custom_outputs=policy)
        where = ("sandbox_service", SandboxServiceConfig(url=JOB["url"]))  # and not by SANDBOX_URL
        task = task_with(inspect_task.sandbox_swe(rows), sandbox=where)
        (log,) = evaluate(task, model=model, display="none", log_dir=f"{folder}/logs")
        outcomes = {}
        for sample in log.samples or []:  # read from the log's file, not before
            score = (sample.scores or {}).get("graded")
            outcomes[str(sample.input)] = {
                "value": score and score.value,
                "verdict": score and score.metadata["verdict"],
                "error": sample.error and sample.error.message,
                "seen": [message.text for message in sample.messages if message.role == "tool"],
            }
    return outcomes


json.dump({**asyncio.run(checks(JOB["sandbox"])), "samples": graded()}, sys.stdout)
