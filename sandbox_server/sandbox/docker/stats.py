"""What the engine measures of a container."""

from typing import Any

from docker import APIClient

from sandbox_server.errors import SandboxLost


def stats(api: APIClient, container_id: str, *, one_shot: bool = True) -> dict[str, Any]:
    """The engine's figures. `one_shot`: one reading; otherwise the engine takes a second one a second later.

    Raises:
        SandboxLost: the container ended meanwhile. The engine then answers with nothing, which is no silence.

    """
    try:
        found: dict[str, Any] = api.stats(container_id, stream=False, one_shot=one_shot or None)
    except ValueError:
        raise SandboxLost(f"the container {container_id[:12]} ended while it was measured") from None
    return found
