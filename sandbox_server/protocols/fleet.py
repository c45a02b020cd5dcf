"""The nodes behind the balancer: list and drain them."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict

from sandbox_server.protocols._parts import fleet_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import json_answer
from sandbox_server.state.nodes import NodeRecord, Status

_NOT_FOUND = refusals(404)

ROUTER = APIRouter(prefix="/v1", tags=["v1"])

Node = Annotated[str, Path(min_length=1, max_length=300, pattern="^[^\\x00]+$")]


class NodeView(BaseModel):
    """A node according to its last heartbeat."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    node: str
    url: str
    """The URL by which other nodes reach its server."""
    boot: str
    """Id of its server process."""
    status: Status
    """A draining node finishes its work and takes nothing new."""
    version: str
    engine: str
    """Docker's version."""
    cpus: int
    memory_mb: int
    slots: int
    """Maximum number of sessions."""
    used: int
    waiting: int
    """Starts that wait for a slot."""
    parked: dict[str, int]
    """Instance id -> containers parked for its starts."""
    grade_slots: int
    gradings: int
    """Running and queued gradings."""
    faults: dict[str, str]
    """Reason -> what is wrong; while there is any fault, the node takes nothing new."""
    vitals: dict[str, float | None]
    """Measured twice a minute: `engine_ms` (the engine's answer), `clock_off_s` (its clock minus the server's),
    `disk_used` (0 to 1, of the engine's disk), `data_free_mb`, `oom_kills`, `stalls` of the event loop (both since the
    server started), `pulls` under way."""
    beats: int
    """Heartbeats since its server started."""


@ROUTER.get("/nodes", response_model=list[NodeView])
async def list_nodes(request: Request) -> Response:
    """All nodes that have a heartbeat, by name."""
    return json_answer([_shown(node) for node in await fleet_of(request).nodes()])


@ROUTER.post("/nodes/{node}/drain", status_code=202, responses=_NOT_FOUND)
async def drain(request: Request, node: Node) -> Response:
    """Have a node take nothing new, and end its server once its sessions and gradings are over."""
    await fleet_of(request).drain(node, begin=True)
    return json_answer({"node": node, "draining": True}, 202)


@ROUTER.delete("/nodes/{node}/drain", responses=_NOT_FOUND)
async def stop_draining(request: Request, node: Node) -> Response:
    """Have the node take sessions again."""
    await fleet_of(request).drain(node, begin=False)
    return json_answer({"node": node, "draining": False})


def _shown(node: NodeRecord) -> dict[str, object]:
    stored = asdict(node)  # has further fields, which only other nodes need
    return {name: stored[name] for name in NodeView.model_fields}
