"""Agents that use tools by MCP, and environments by OpenEnv."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import NoDecode


class AgentSettings(BaseModel):
    """Agents that use tools by MCP, and environments by OpenEnv."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    # Agents
    agent_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated origins (https://host:port) of web pages that may use `/mcp` and `/openenv`. Pages of this
    machine need not be listed; a request with any other `Origin` gets 403. Agents and trainers send none."""
    agent_reward_wait_s: Annotated[float, Field(gt=0)] = 45.0
    """Longest wait for a reward by MCP and OpenEnv; then its verdict is `pending`, and the client may ask again.
    Their clients give up after 60 s unless told otherwise. SANDBOX_REWARD_WAIT_S is the other bound."""
    openenv_connections: Annotated[int, Field(ge=0)] = 2048
    """Websockets of OpenEnv open at a time on this node; one more gets CAPACITY_REACHED."""
    openenv_idle_s: Annotated[float, Field(gt=0)] = 1800.0
    """A websocket of OpenEnv without a message for this long is closed, and its session ends."""
