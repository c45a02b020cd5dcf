"""Reads the engine's list of containers, in which labels mark the containers of this service."""

from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sandbox_server import clock
from sandbox_server.sandbox.base import ContainerInfo, Role
from sandbox_server.sandbox.docker.labels import ASSIGNED, DEADLINE, GROUP, NODE, ROLE, SERVICE, SID, TOKEN
from sandbox_server.sandbox.docker.layer_files import ENTRY_BYTES


def sandboxes(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sandboxes in the list: no services, and no containers of a newer version of the server."""
    return [container for container in found if container["Labels"].get(ROLE) in set(Role)]


def of_node(infos: Sequence[ContainerInfo], node: str) -> list[ContainerInfo]:
    """The node's containers, and expired ones that a killed CLI command on it left (node "<node>+...")."""
    guests, now = f"{node}+", clock.today()
    return [info for info in infos if info.node == node or (info.node.startswith(guests) and info.deadline < now)]


def info_of(container: dict[str, Any], image: str, held: Container[str | None]) -> ContainerInfo:
    """An entry of the list. `held`: tokens of the containers that this process makes or has open."""
    labels = container["Labels"]
    try:
        deadline = datetime.fromisoformat(labels.get(DEADLINE, ""))
    except ValueError:
        deadline = datetime.fromtimestamp(container["Created"], UTC)
    return ContainerInfo(
        container_id=container["Id"],
        role=Role(labels[ROLE]),
        sid=sid_of(container.get("Names") or (), labels),
        node=labels[NODE],
        deadline=deadline,
        running=container["State"] == "running",
        image=image,
        held=labels.get(TOKEN) in held,
        paused=container["State"] == "paused",
    )


def sid_of(names: Sequence[str], labels: dict[str, str]) -> str:
    """The sid in the container's name if it was assigned to another session, else the one in its labels."""
    for name in names:
        if name.startswith(f"/{ASSIGNED}"):
            return str(name.removeprefix(f"/{ASSIGNED}").partition("-")[0])
    return labels.get(SID, "")


def layer_bytes(found: Sequence[dict[str, Any]], counts: Mapping[str, int]) -> dict[str, int]:
    """Container id -> bytes in its writable layer and those of its services; `counts`: files and folders in each."""
    sizes = {one["Id"]: one.get("SizeRw", 0) + counts.get(one["Id"], 0) * ENTRY_BYTES for one in found}
    used = {one["Id"]: sizes[one["Id"]] for one in found if one["Labels"].get(ROLE) != SERVICE}
    owners = {one["Labels"].get(GROUP): one["Id"] for one in found if one["Id"] in used}
    for one in found:
        if one["Id"] not in used and (owner := owners.get(one["Labels"].get(GROUP))):
            used[owner] += sizes[one["Id"]]
    return used
