"""Files of boxes and sessions: streamed in and out, or copied from blobs that a node stores once for many sandboxes."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.files import refused, write
from sandbox_server.boxes.session_work import USER
from sandbox_server.errors import FileUnusable, MalformedRequest
from sandbox_server.protocols._background import spawn
from sandbox_server.protocols._caller import check_session
from sandbox_server.protocols._flow import prepend, with_idle_timeout
from sandbox_server.protocols._parts import boxes_of, session_boxes_of
from sandbox_server.protocols._refusals import Sid, refusals
from sandbox_server.protocols._streamed import Streamed
from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols._wire import idempotency_key, json_answer, key_owner, read, takes
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sandbox.filesystem import FileInfo, FileKind

_DEEPEST = 20


class WrittenFile(BaseModel):
    """A written file."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    path: str
    """Absolute."""
    size: int
    notice: str = ""
    """For a session: as in a batch's response; usually ""."""


class FileEntry(BaseModel):
    """The entry at a path."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    path: str
    """Absolute."""
    kind: FileKind
    """A link has its target's kind; `symlink` is a dangling link."""
    size: int
    mode: str
    """Permission bits in octal, as for chmod."""
    owner: str
    group: str
    mtime: float
    """Unix seconds."""
    target: str | None
    """A link's target; null for everything else."""


class FromBlob(BaseModel):
    """A file to write from a blob."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    path: str = Field(min_length=1)
    user: str | None = Field(None, min_length=1, max_length=100)
    mode: str | None = Field(None, pattern="^[0-7]{3,4}$")


class StoredBlob(BaseModel):
    """A blob."""

    sha256: str
    size: int


_REFUSALS = refusals(404, 409)

ROUTER = APIRouter(prefix="/v1", tags=["boxes"])
TRAITS = (Trait(re.compile(r"/v1/(blobs/|boxes/[0-9]+/files$)"), streams=True),)

FilePath = Annotated[str, Query(alias="path", min_length=1, description="absolute, or relative to the user's home")]
User = Annotated[str | None, Query(min_length=1, max_length=100)]
Mode = Annotated[str | None, Query(pattern="^[0-7]{3,4}$")]
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
BoxId = Annotated[str | None, Query(pattern="^[0-9]{1,19}$", description="use the node of this box")]


@ROUTER.put("/boxes/{sid}/files", response_model=WrittenFile, responses=_REFUSALS)
async def write_file(request: Request, sid: Sid, path: FilePath, user: User = None, mode: Mode = None) -> Response:
    """Write the body, of any length, to a file. The file and the missing folders, which are created, belong to `user`.

    For a session the limit is SANDBOX_JOURNAL_FILE_MB, because its journal stores the file; a larger one is refused
    with 413, which names the alternative.
    """
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        sessions = session_boxes_of(request)
        await sessions.sandbox(sid)  # before reading the body, so that a request for another node is forwarded
        body = await _whole(request, sessions.file_bytes)
        writing = sessions.write(sid, path, body, user=user, mode=mode, key=idempotency_key(request))
        return json_answer(await asyncio.shield(spawn(request, writing)))
    sandbox, owner = await boxes.sandbox(view), user or view.box.user
    return json_answer(_written(await write(sandbox, path, _arriving(request), owner, mode)))


@ROUTER.get("/boxes/{sid}/files", response_class=Response, responses=_REFUSALS)
async def read_file(request: Request, sid: Sid, path: FilePath, user: User = None) -> Response:
    """A file's bytes."""
    sandbox, user = await _sandbox(request, sid, user)
    data = sandbox.get(path, user=user)
    try:
        first = await anext(data, b"")
    except (OSError, ValueError) as error:
        raise refused(path, error) from None
    return Streamed(prepend(first, data), "application/octet-stream")


@ROUTER.get("/boxes/{sid}/files/info", response_model=FileEntry, responses=_REFUSALS)
async def stat_file(request: Request, sid: Sid, path: FilePath, user: User = None) -> Response:
    """The entry at a path; 404 `unknown_file` if there is none."""
    sandbox, user = await _sandbox(request, sid, user)
    try:
        return json_answer(_entry(await sandbox.stat(path, user=user)))
    except (OSError, ValueError) as error:
        raise refused(path, error) from None


@ROUTER.get("/boxes/{sid}/files/list", response_model=list[FileEntry], responses=_REFUSALS)
async def list_files(
    request: Request,
    sid: Sid,
    path: FilePath,
    user: User = None,
    depth: Annotated[int, Query(ge=1, le=_DEEPEST)] = 1,
) -> Response:
    """The entries of a folder, sorted; links are not followed. 409 if it is not a folder or has too many entries."""
    sandbox, user = await _sandbox(request, sid, user)
    try:
        return json_answer([_entry(info) for info in await sandbox.listdir(path, user=user, depth=depth)])
    except OverflowError:
        raise FileUnusable(f"{path}: its listing is too large; use a smaller depth, or find") from None
    except (OSError, ValueError) as error:
        raise refused(path, error) from None


@ROUTER.post(
    "/boxes/{sid}/files/from-blob", response_model=WrittenFile, responses=_REFUSALS, openapi_extra=takes(FromBlob)
)
async def copy_blob(request: Request, sid: Sid) -> Response:
    """Write a blob stored on the box's node to a file. 404 `unknown_blob`: PUT it with `box`, then repeat."""
    asked = await read(request, FromBlob)
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        key = idempotency_key(request)
        writing = session_boxes_of(request).write(
            sid,
            asked.path,
            asked.sha256,
            user=asked.user,
            mode=asked.mode,
            key=f"{asked.sha256}:{key}" if key else "",
            owner=key_owner(request),
        )
        return json_answer(await asyncio.shield(spawn(request, writing)))
    sandbox, owner = await boxes.sandbox(view), asked.user or view.box.user
    blobs = _blobs(request)
    of = key_owner(request)
    blobs.size(asked.sha256, of)  # checked before anything is written
    chunks = blobs.read(asked.sha256, of)
    return json_answer(_written(await write(sandbox, asked.path, chunks, owner, asked.mode)))


@ROUTER.head("/blobs/{sha256}", responses=_REFUSALS)
async def has_blob(request: Request, sha256: Sha256, box: BoxId = None) -> Response:
    """200 if this node (or the node of `box`) has the blob, else 404."""
    await _on_node_of(request, box)
    return Response(headers={"X-Blob-Size": str(_blobs(request).size(sha256, key_owner(request)))})


@ROUTER.put("/blobs/{sha256}", response_model=StoredBlob, status_code=201, responses=_REFUSALS)
async def store_blob(request: Request, sha256: Sha256, box: BoxId = None) -> Response:
    """Store the body on this node (or the node of `box`) under its SHA-256."""
    await _on_node_of(request, box)
    size = await _blobs(request).put(sha256, _arriving(request), key_owner(request))
    return json_answer({"sha256": sha256, "size": size}, 201)


async def _sandbox(request: Request, sid: str, user: str | None) -> tuple[Sandbox, str]:
    """The sandbox of a box or session on this node, and the user for its files."""
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        return await session_boxes_of(request).sandbox(sid), user or USER
    return await boxes.sandbox(view), user or view.box.user


async def _on_node_of(request: Request, sid: str | None) -> None:
    if sid is None:
        return
    await check_session(request, sid)
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        await session_boxes_of(request).sandbox(sid)
    else:
        await boxes.here(view)


def _written(info: FileInfo) -> dict[str, object]:
    return {"path": info.path, "size": info.size}


def _entry(info: FileInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "path": info.path,
        "kind": info.kind.value,
        "size": info.size,
        "mode": f"{info.mode:o}",
        "owner": info.owner,
        "group": info.group,
        "mtime": info.mtime_ns / 1e9,
        "target": info.target,
    }


async def _whole(request: Request, most: int) -> bytes:
    """The body; if it is longer than `most` bytes, `most` + 1 zero bytes instead, which `write` refuses as too long."""
    parts, came = [], 0
    async for chunk in _arriving(request):
        came += len(chunk)
        if came > most:
            return bytes(most + 1)
        parts.append(chunk)
    return b"".join(parts)


async def _arriving(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the body. MalformedRequest if no data arrives for a while."""
    try:
        async for chunk in with_idle_timeout(request.stream()):
            yield chunk
    except TimeoutError as error:
        raise MalformedRequest(str(error)) from None


def _blobs(request: Request) -> Blobs:
    return cast(Blobs, request.app.state.blobs)
