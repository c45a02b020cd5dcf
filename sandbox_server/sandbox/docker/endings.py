"""How a container ends: removed by us, or by itself."""

from contextlib import suppress
from typing import Any

from sandbox_server.errors import EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.freezing import thaw_if_slow


async def remove(engine: Engine, container_id: str) -> None:
    """Kill and remove the container; one that is gone already is no error. Raises EngineUnavailable."""
    try:
        removal = engine.call(lambda api: api.remove_container(container_id, force=True, v=True))
        await thaw_if_slow(engine, container_id, removal)
    except SandboxLost:
        return  # gone, or its removal is in progress
    except EngineUnavailable:
        # 20.10 answers 500 to the second of two concurrent removals: check whether it still exists
        with suppress(SandboxLost):
            await engine.call(lambda api: api.inspect_container(container_id))
            raise


async def how_it_ended(engine: Engine, container_id: str) -> str:
    """The suffix for "it ended", such as ` (exit code 137, out of memory)`; "" if the reason is not known."""
    with suppress(ServiceError):
        found: dict[str, Any] = await engine.call(lambda api: api.inspect_container(container_id))
        state = found["State"]
        return f" (exit code {state['ExitCode']}{', out of memory' if state['OOMKilled'] else ''})"
    return ""
