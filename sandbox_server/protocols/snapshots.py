"""Our own endpoints for the files of boxes: snapshots, copies of boxes, pauses that keep only files."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.catalogue.snapshots import Snapshot
from sandbox_server.errors import ServiceError, UnknownSnapshot
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.protocols._disconnects import Started, group_answer
from sandbox_server.protocols._parts import boxes_of, forks_of, snapshots_of, snapshotting_of
from sandbox_server.protocols._refusals import Sid, refusals
from sandbox_server.protocols._wire import idempotency_key, json_answer, read, takes
from sandbox_server.protocols.boxes import BoxDetail, Seconds, box_detail
from sandbox_server.protocols.groups import GroupAnswer

_MOST_COPIES = 100
_MOST_NAME = 300


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Asked(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class NewSnapshot(_Asked):
    """A snapshot to take. Repeated with the same Idempotency-Key, the request returns the same snapshot."""

    name: Annotated[str, Field(max_length=_MOST_NAME)] = ""
    """`name[:tag]`; replaces an earlier snapshot of that name."""


class SnapshotDetail(_Shown):
    """A snapshot: a box's files at one time."""

    id: str
    name: str
    """`name:tag`; "" for none. Works wherever the id does."""
    sid: str
    """Sid of the box."""
    image: str
    node: str
    """The node that took it."""
    shared: bool
    """True: every node can start boxes from the snapshot; false: only `node` can."""
    created_at: float
    """Unix seconds."""
    size_bytes: int
    """Compressed size of its files."""


class BoxFork(_Asked):
    """The number of copies."""

    n: Annotated[StrictInt, Field(ge=1, le=_MOST_COPIES)] = 1
    lifetime_s: Seconds | None = None
    """Seconds until each copy ends; default: SANDBOX_BOX_DEFAULT_S."""


class Resumed(_Asked):
    """The lifetime of a resumed box."""

    lifetime_s: Seconds | None = None
    """Seconds from now on; default: SANDBOX_BOX_DEFAULT_S."""


_REFUSALS = refusals(404, 409, 503)

ROUTER = APIRouter(prefix="/v1", tags=["boxes"])


@ROUTER.post(
    "/boxes/{sid}/snapshots",
    response_model=SnapshotDetail,
    status_code=201,
    responses=_REFUSALS,
    openapi_extra=takes(NewSnapshot),
)
async def take_snapshot(request: Request, sid: Sid) -> Response:
    """Take a snapshot of a running box's files; `POST /v1/boxes` makes boxes from it.

    The snapshot has no running programs.
    """
    name = (await read(request, NewSnapshot)).name
    taken = await snapshotting_of(request).take(sid, name, idempotency_key=idempotency_key(request))
    return json_answer(_shown(taken), 201)


@ROUTER.get("/snapshots", response_model=list[SnapshotDetail])
async def list_snapshots(
    request: Request,
    sid: Annotated[str, Query(max_length=20)] = "",
    name: Annotated[str, Query(max_length=_MOST_NAME)] = "",
) -> Response:
    """The API key's snapshots, newest first. `sid` selects those of one box, `name` the one with this name or id."""
    found = await snapshots_of(request).listed(owner_of_caller(request), sid=sid, name=name)
    return json_answer([_shown(one) for one in found])


@ROUTER.delete("/snapshots/{snapshot}", status_code=204, responses=_REFUSALS)
async def delete_snapshot(request: Request, snapshot: Annotated[str, Path(max_length=_MOST_NAME)]) -> Response:
    """Delete a snapshot by its id or name; boxes made from it live on."""
    if not await snapshots_of(request).delete(owner_of_caller(request), snapshot):
        raise UnknownSnapshot(f"no snapshot {snapshot!r}")
    return Response(status_code=204)


@ROUTER.post("/boxes/{sid}/fork", response_model=GroupAnswer, responses=_REFUSALS, openapi_extra=takes(BoxFork))
async def fork_box(request: Request, sid: Sid) -> Response:
    """Make n boxes with this one's files, image, environment, limits and network, without its running programs.

    The status is an error only if no box could be made. If the client disconnects, all are discarded.
    """
    asked = await read(request, BoxFork)
    key = idempotency_key(request)

    async def made() -> Started:
        results = await forks_of(request).fork(sid, asked.n, timeout_s=asked.lifetime_s, idempotency_key=key)
        failed = [one for one in results if isinstance(one, ServiceError)]
        if len(failed) == len(results):
            raise failed[0]
        return [one.sid for one in results if isinstance(one, BoxView)], failed

    return await group_answer(request, made())


@ROUTER.post("/boxes/{sid}/pause", response_model=BoxDetail, responses=_REFUSALS)
async def pause_box(request: Request, sid: Sid) -> Response:
    """Keep only the box's files: its programs end, and it has no container and no slot until it is resumed."""
    return json_answer(box_detail(await boxes_of(request).pause(sid, memory=False)))


@ROUTER.post("/boxes/{sid}/resume", response_model=BoxDetail, responses=_REFUSALS, openapi_extra=takes(Resumed))
async def resume_box(request: Request, sid: Sid) -> Response:
    """Give a paused box a container again."""
    life = await read(request, Resumed)
    return json_answer(box_detail(await boxes_of(request).resume(sid, life.lifetime_s)))


def _shown(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.snapshot_id,
        "name": snapshot.name,
        "sid": snapshot.sid,
        "image": snapshot.box.image,
        "node": snapshot.node,
        "shared": snapshot.shared,
        "created_at": snapshot.created_at,
        "size_bytes": snapshot.size_bytes,
    }
