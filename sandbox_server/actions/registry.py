"""The available dialects and tools: each file in a folder adds one."""

from functools import cache
from typing import cast

from sandbox_server import plugins
from sandbox_server.actions import dialects as dialect_folder
from sandbox_server.actions import tools as tool_folder
from sandbox_server.actions.base import Dialect, Tool
from sandbox_server.actions.profiles import OPENHANDS, PLAIN
from sandbox_server.actions.protocol_calls import WithProtocolCalls

PROFILES = (OPENHANDS, PLAIN)


@cache
def dialects() -> dict[str, Dialect]:
    """All dialects, by file name; each also takes tool calls by a protocol (MCP, OpenEnv)."""
    found = cast(dict[str, Dialect], plugins.discover(dialect_folder, "DIALECT"))
    return {name: WithProtocolCalls(dialect, found["tool_calls"]) for name, dialect in found.items()}


@cache
def tools() -> dict[str, Tool]:
    """All tools, by the name used in calls (`Tool.name`)."""
    found = cast(dict[str, Tool], plugins.discover(tool_folder, "TOOL"))
    return {tool.name: tool for tool in found.values()}


def dialect(name: str) -> Dialect:
    """The dialect with this name.

    Raises:
        ValueError: there is none; the start must stop.

    """
    if name not in dialects():
        raise ValueError(f"there is no dialect {name!r}; there are {', '.join(dialects())}")
    return dialects()[name]


def profile(name: str) -> str:
    """Return `name` if it is an observation profile.

    Raises:
        ValueError: it is not; the start must stop.

    """
    if name not in PROFILES:
        raise ValueError(f"there is no observation profile {name!r}; there are {', '.join(PROFILES)}")
    return name
