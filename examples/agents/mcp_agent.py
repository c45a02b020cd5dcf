"""A scripted agent by MCP: starts a session of a sample, looks around, mends it, submits, and asks for the reward.

    pip install mcp                                                  # 2.0 or newer
    python examples/agents/mcp_agent.py http://localhost:5000        # a server that has the samples; SANDBOX_API_KEY

A trainer would start the session itself and give its agent /mcp/sessions/{sid}, whose tools need no sid.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

INSTANCE = "samples__ledger-12"
PATCH = (Path(__file__).parent.parent / "ledger" / "gold.patch").read_text()
STEPS = (
    ("execute_bash", {"command": "cd /testbed && git log --oneline | head -3 && ls"}),
    ("str_replace_editor", {"command": "view", "path": "/testbed/README.md"}),
    ("execute_bash", {"command": f"git apply - <<'END_OF_PATCH'\n{PATCH}END_OF_PATCH"}),
    ("submit", {}),
)
"""What the "model" says."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://localhost:5000")
    url = parser.parse_args().url.rstrip("/")
    key = os.environ.get("SANDBOX_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # a command may run for SANDBOX_COMMAND_TIMEOUT_S, 100 s; a first start may pull an image
    async with (
        httpx2.AsyncClient(headers=headers, timeout=320) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        print("protocol", client.protocol_version)
        print("tools   ", ", ".join(tool.name for tool in (await client.list_tools()).tools))

        async def call(tool: str, **arguments: object) -> str:
            result = await client.call_tool(tool, arguments)
            text = result.content[0].text
            if result.is_error:
                raise SystemExit(f"{tool}: {text}")
            return text

        task = json.loads(await call("start", instance=INSTANCE))
        print("task    ", task["problem_statement"].splitlines()[0])
        for tool, arguments in STEPS:
            seen = await call(tool, sid=task["sid"], **arguments)
            print(f"{tool:20} {' '.join(seen.split())[:90]}")
        while (graded := json.loads(await call("reward", sid=task["sid"])))["verdict"] == "pending":
            pass
    print(f"{graded['verdict']} {graded['reward']}" + (" (masked)" if graded["mask"] else ""))


if __name__ == "__main__":
    asyncio.run(main())
