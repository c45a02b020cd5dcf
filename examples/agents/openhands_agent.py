"""OpenHands (its SDK) as the agent of a session: its only tools are the session's, by MCP.

    pip install openhands-sdk                                       # Python 3.12 or newer
    python examples/scripted_policy.py &                            # or a model: LLM_MODEL, LLM_BASE_URL, LLM_API_KEY
    python examples/agents/openhands_agent.py http://localhost:5000 # a server that has the samples; SANDBOX_API_KEY

The agent runs here, outside of the sandbox, in an empty folder, and has a token that opens this one session.
"""

import argparse
import json
import os
import tempfile
import urllib.request

from openhands.sdk import LLM, Agent, Conversation
from openhands.sdk.mcp import MCPServer
from pydantic import SecretStr


def ask(url: str, body: object = None) -> dict:
    """The JSON that a URL answers; `body` is sent as JSON."""
    headers = {"X-API-Key": os.environ.get("SANDBOX_API_KEY", "none"), "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=320) as answer:
        return json.load(answer)


def solve(url: str, sid: str, problem: str, token: str) -> None:
    """One conversation about the problem, until the agent says that it is done."""
    llm = LLM(
        usage_id="agent",
        model=os.environ.get("LLM_MODEL", "openai/scripted"),
        base_url=os.environ.get("LLM_BASE_URL", "http://127.0.0.1:8000/v1"),
        api_key=SecretStr(os.environ.get("LLM_API_KEY", "none")),
    )
    tools = MCPServer(url=f"{url}/mcp/sessions/{sid}", transport="http", headers={"X-API-Key": token})
    with tempfile.TemporaryDirectory() as folder:
        conversation = Conversation(
            agent=Agent(llm=llm, tools=[], mcp_config={"sandbox": tools}), workspace=folder, max_iteration_per_run=30
        )
        conversation.send_message(problem)
        conversation.run()
        conversation.close()


def main() -> None:
    """One rollout, graded by the service."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url", nargs="?", default="http://localhost:5000")
    options.add_argument("--instance", default="samples__ledger-12")
    chosen = options.parse_args()
    url = chosen.url.rstrip("/")
    problem = ask(f"{url}/v1/instances/{chosen.instance}")["problem_statement"]
    sid = ask(f"{url}/start_instance", {"instance_hash": chosen.instance})["sid"]
    try:
        solve(url, sid, problem, ask(f"{url}/v1/sessions/{sid}/tokens", {})["token"])
    finally:  # a session that nobody ends holds its place until it has been idle for long
        ask(f"{url}/postprocess", {"sid": sid})
    while (graded := ask(f"{url}/compute_reward", {"sid": sid}))["verdict"] == "pending":
        pass
    print(f"{chosen.instance}: {graded['verdict']}, reward {graded['reward']}: {graded['cause']}")


if __name__ == "__main__":
    main()
