"""Rollouts of a scripted policy in the real verifiers 0.4: `roll_verifiers_v1.py < job`, outcomes on stdout.

Runs in an environment of its own, with sandbox_client and examples/verifiers on PYTHONPATH. The policy is an endpoint
of OpenAI's kind, as a model's would be, so all that is around it is the package's.
"""

import asyncio
import json
import os
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

JOB = json.load(sys.stdin)
SEEN = {name: [] for name in JOB["scripts"]}
TOOLS = {}


class Policy(BaseHTTPRequestHandler):
    """Says each rollout's next line; `scripts` are told apart by their prompts."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = asked["messages"][0]["content"]
        SEEN[name] = asked["messages"]
        TOOLS[name] = [tool["function"]["name"] for tool in asked.get("tools", [])]
        line = JOB["scripts"][name][sum(message["role"] == "assistant" for message in asked["messages"])]
        calls = [
            {"id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
            for number, (tool, arguments) in enumerate(line.get("calls", []))
        ]
        message = {"role": "assistant", "content": line.get("text", "")} | ({"tool_calls": calls} if calls else {})
        body = json.dumps(
            {
                "id": "r",
                "object": "chat.completion",
                "created": 0,
                "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


async def play(names: list[str], tools: list[str], client: EvalClientConfig) -> dict:
    """The rollouts of one environment, at the same time; its package is the example's."""
    rows = Path(tempfile.mkdtemp()) / "rows.jsonl"
    rows.write_text("".join(json.dumps({"instance_id": JOB["instances"][n], "prompt": n}) + "\n" for n in names))
    environment = load_environment(
        resolve_env_config(
            {
                "taskset": {"id": "sandbox-swe", "rows": rows, "task": {"url": JOB["url"], "run": "verifiers"}},
                "agent": {"max_turns": JOB["max_turns"], "harness": {"id": "sandbox-swe", "tools": tools}},
            }
        )
    )
    context = ModelContext(model="scripted", client=client, sampling=vf.SamplingConfig())
    async with environment.serving():
        slots = [environment.slots(task)[0] for task in environment.taskset]
        episodes = await asyncio.gather(*(environment.run_slot(slot, context) for slot in slots))
    return {name: _told(episode) for name, episode in zip(names, episodes, strict=True)}


def _told(episode: vf.Episode) -> dict:
    (trace,) = episode.traces
    return {
        "ok": trace.ok,
        "rewards": {name: reward.value for name, reward in trace.rewards.items() if reward is not None},
        "metrics": trace.metrics,
        "error": None if trace.ok else f"{trace.last_error.type}: {trace.last_error.message}",
        "stop": trace.stop_condition,
        "turns": trace.num_turns,
        "sid": trace.state.sid,
        "grade": trace.state.grade,
    }


async def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Policy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["SCRIPTED_KEY"] = "none"
    client = EvalClientConfig(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_var="SCRIPTED_KEY")
    calling = [name for name in JOB["scripts"] if name not in JOB["in_text"]]
    rollouts = await play(calling, JOB["tools"], client) | await play(JOB["in_text"], [], client)
    for name, one in rollouts.items():
        one["seen"], one["tools"] = SEEN[name], TOOLS.get(name)
    server.shutdown()
    json.dump({"rollouts": rollouts}, sys.stdout)


asyncio.run(main())
