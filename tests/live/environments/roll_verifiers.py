"""Rollouts of a scripted policy in the real verifiers, by `evaluate`: `roll_verifiers.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client on PYTHONPATH. The policy is a client of verifiers' own kind, so
all that is around it is the package's.
"""

import asyncio
import json
import sys

from datasets import Dataset
from sandbox_client import verifiers as code_search
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, ToolCall


class Scripted(Client):
    """Says each rollout's next line; `scripts` are told apart by their prompts."""

    def __init__(self, scripts):
        super().__init__(scripts)
        self.seen = {name: [] for name in scripts}

    def setup_client(self, config):
        raise NotImplementedError

    async def to_native_tool(self, tool):
        return tool.model_dump()

    async def to_native_prompt(self, messages):
        return list(messages), {}

    async def get_native_response(self, prompt, model, sampling_args, tools=None, **kwargs):
        name = prompt[0].content
        self.seen[name] = [message.model_dump() for message in prompt]
        self.tools = tools
        turn = sum(message.role == "assistant" for message in prompt)
        return self.client[name][turn]

    async def raise_from_native_response(self, response):
        pass

    async def from_native_response(self, line):
        calls = [
            ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
            for number, (name, arguments) in enumerate(line.get("calls", []))
        ]
        said = ResponseMessage(
            content=line.get("text", ""), tool_calls=calls or None, finish_reason="stop", is_truncated=False
        )
        return Response(id="r", created=0, model="scripted", message=said)

    async def close(self):
        pass


async def main() -> None:
    job = json.load(sys.stdin)
    records = [
        {"instance_id": job["instances"][name], "prompt": [{"role": "user", "content": name}]}
        for name in job["scripts"]
    ]
    environment = code_search.CodeSearchEnv(
        job["url"],
        run="verifiers",
        max_turns=job["max_turns"],
        finish_tool=True,
        eval_dataset=Dataset.from_list(code_search.rows(records)),
    )
    policy = Scripted(job["scripts"])
    outputs = await environment.evaluate(
        policy, "scripted", state_columns=["sandbox_sid", "sandbox_grade", "stop_condition"]
    )
    await environment._teardown()
    outcomes = {}
    for output in outputs["outputs"]:
        (name,) = [message["content"] for message in json.loads(json.dumps(output["prompt"], default=dict))]
        outcomes[name] = {
            "reward": output["reward"],
            "error": output.get("error"),
            "sid": output.get("sandbox_sid"),
            "grade": output.get("sandbox_grade"),
            "stop": output.get("stop_condition"),
            "metrics": output.get("metrics"),
            "seen": policy.seen[name],
        }
    json.dump({"rollouts": outcomes, "tools": policy.tools}, sys.stdout, default=str)


asyncio.run(main())
