"""Files of boxes: streamed in and out, or copied from a store that holds what many boxes get once on each node."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.errors import FileUnusable, InfrastructureError, MalformedRequest, UnknownFile
from sandbox_server.protocols._caller import check_session
from sandbox_server.protocols._flow import after, steady
from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols._wire import json_answer, key_owner, read, takes
from sandbox_server.protocols.e2b.access import boxes_of
from sandbox_server.protocols.e2b.streamed import Streamed
from sandbox_server.protocols.v1 import Refused, Sid
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.sandbox.tree import FileInfo
from sandbox_server.sessions.blobs import Blobs

_CHMOD_S = 60.0


class WrittenFile(BaseModel):
    """A file that was written."""

    path: str
    """Absolute."""
    size: int


class FromBlob(BaseModel):
    """A file to be made of a blob."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    path: str = Field(min_length=1)
    user: str | None = Field(None, min_length=1, max_length=100)
    mode: str | None = Field(None, pattern="^[0-7]{3,4}$")


class StoredBlob(BaseModel):
    """A blob."""

    sha256: str
    size: int


_REFUSALS: dict[int | str, dict[str, Any]] = {404: {"model": Refused}, 409: {"model": Refused}}

ROUTER = APIRouter(prefix="/v1", tags=["boxes"])
TRAITS = (Trait(re.compile(r"/v1/(blobs/|boxes/[0-9]+/files$)"), streams=True),)

FilePath = Annotated[str, Query(alias="path", min_length=1, description="absolute, or from the user's home")]
User = Annotated[str | None, Query(min_length=1, max_length=100)]
Mode = Annotated[str | None, Query(pattern="^[0-7]{3,4}$")]
Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
BoxId = Annotated[str | None, Query(pattern="^[0-9]{1,19}$", description="the blob is wanted on the node of this box")]


@ROUTER.put("/boxes/{sid}/files", response_model=WrittenFile, responses=_REFUSALS)
async def write_file(request: Request, sid: Sid, path: FilePath, user: User = None, mode: Mode = None) -> Response:
    """Write the body, as long as it is, to a file; missing folders are made, all of it the user's."""
    sandbox, user = await _sandbox(request, sid, user)
    return json_answer(await _put(sandbox, path, _arriving(request), user, mode))


@ROUTER.get("/boxes/{sid}/files", response_class=Response, responses=_REFUSALS)
async def read_file(request: Request, sid: Sid, path: FilePath, user: User = None) -> Response:
    """A file's bytes."""
    sandbox, user = await _sandbox(request, sid, user)
    data = sandbox.get(path, user=user)
    try:
        first = await anext(data, b"")
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    return Streamed(after(first, data), "application/octet-stream")


@ROUTER.post(
    "/boxes/{sid}/files/from-blob", response_model=WrittenFile, responses=_REFUSALS, openapi_extra=takes(FromBlob)
)
async def copy_blob(request: Request, sid: Sid) -> Response:
    """Write a blob that the box's node holds to a file. 404 `unknown_blob`: PUT it, with `box`, and ask again."""
    asked = await read(request, FromBlob)
    sandbox, user = await _sandbox(request, sid, asked.user)
    blobs = _blobs(request)
    owner = key_owner(request)
    blobs.size(asked.sha256, owner)  # before anything is written
    return json_answer(await _put(sandbox, asked.path, blobs.read(asked.sha256, owner), user, asked.mode))


@ROUTER.head("/blobs/{sha256}", responses=_REFUSALS)
async def has_blob(request: Request, sha256: Sha256, box: BoxId = None) -> Response:
    """200 where this node (that of `box`) holds it, else 404."""
    await _on_node_of(request, box)
    return Response(headers={"X-Blob-Size": str(_blobs(request).size(sha256, key_owner(request)))})


@ROUTER.put("/blobs/{sha256}", response_model=StoredBlob, status_code=201, responses=_REFUSALS)
async def store_blob(request: Request, sha256: Sha256, box: BoxId = None) -> Response:
    """Keep the body on this node (that of `box`) under the SHA-256 of what it holds."""
    await _on_node_of(request, box)
    size = await _blobs(request).put(sha256, _arriving(request), key_owner(request))
    return json_answer({"sha256": sha256, "size": size}, 201)


async def _sandbox(request: Request, sid: str, user: str | None) -> tuple[Sandbox, str]:
    """The box's sandbox, on this node, and whose file it is."""
    boxes = boxes_of(request)
    view = await boxes.get(sid)
    return await boxes.sandbox(view), user or view.box.user


async def _on_node_of(request: Request, sid: str | None) -> None:
    if sid is not None:
        await check_session(request, sid)
        boxes = boxes_of(request)
        await boxes.here(await boxes.get(sid))


async def _put(
    sandbox: Sandbox, path: str, chunks: AsyncGenerator[bytes, None], user: str, mode: str | None
) -> dict[str, object]:
    try:
        async with aclosing(chunks):
            info: FileInfo = await sandbox.put(path, chunks, user=user)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    if mode is not None:
        done = await sandbox.exec(["chmod", "--", mode, info.path], timeout_s=_CHMOD_S, user="root")
        if done.exit_code != 0:
            raise InfrastructureError(f"chmod {mode} {info.path}: {done.stderr.text().strip()[-200:]}")
    return {"path": info.path, "size": info.size}


def _refused(path: str, error: Exception) -> UnknownFile | FileUnusable | MalformedRequest:
    if isinstance(error, FileNotFoundError):
        return UnknownFile(f"{path}: no such file")
    if isinstance(error, OSError):
        return FileUnusable(f"{path}: {error.strerror or error}")
    return MalformedRequest(f"{path!r}: {error}")


async def _arriving(request: Request) -> AsyncGenerator[bytes, None]:
    """The body; MalformedRequest where it stands still."""
    try:
        async for chunk in steady(request.stream()):
            yield chunk
    except TimeoutError as error:
        raise MalformedRequest(str(error)) from None


def _blobs(request: Request) -> Blobs:
    return cast(Blobs, request.app.state.blobs)
