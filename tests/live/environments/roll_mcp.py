"""Calls by the official MCP client: `roll_mcp.py < job`, what it was told on stdout.

Runs in an environment of its own, with either generation of the package: since 2.0 it begins with `server/discover`,
before with `initialize`.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

try:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    Client = None
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def connected(url, headers):
    """(session, the protocol's version, instructions)."""
    if Client is None:
        async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as one:
            began = await one.initialize()
            yield one, began.protocolVersion, began.instructions
        return
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="auto") as one,
    ):
        yield one, one.protocol_version, one.instructions


def plain(result):
    """A result as JSON, with the wire's names."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main() -> None:
    job = json.load(sys.stdin)
    done = []
    async with connected(job["url"], job.get("headers", {})) as (session, version, instructions):
        tools = plain(await session.list_tools())["tools"]
        sid = ""
        for name, arguments in job["calls"]:
            named = {key: sid if value == "{sid}" else value for key, value in arguments.items()}
            result = plain(await session.call_tool(name, named))
            (content,) = result["content"]
            if name == "start" and not result["isError"]:
                sid = json.loads(content["text"])["sid"]
            done.append({"text": content["text"], "error": result["isError"], "meta": result.get("_meta", {})})
    json.dump({"version": version, "instructions": instructions, "tools": tools, "calls": done, "sid": sid}, sys.stdout)


asyncio.run(main())
