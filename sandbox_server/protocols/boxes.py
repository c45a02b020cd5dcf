"""Our own API for boxes: an image and commands in it, with less overhead than E2B's protocol.

Clients wait for a command instead of polling: a request waits up to `wait_s` for its end, and a later request can
continue to wait. A create or a command repeated with the same Idempotency-Key is not executed again. Files are in
`box_files`.
"""

import asyncio
import hashlib
import json
import re
import secrets
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.command import CommandLine, with_path
from sandbox_server.boxes.commands import BoxCommand, Commands
from sandbox_server.boxes.planning import BoxRequest
from sandbox_server.boxes.policy import SIZE_KEY
from sandbox_server.errors import MalformedRequest, UnknownSession
from sandbox_server.images.box_images import VIEW_KEY
from sandbox_server.protocols._background import spawn
from sandbox_server.protocols._parts import box_creation_of, boxes_of, session_boxes_of
from sandbox_server.protocols._refusals import Sid, refusals
from sandbox_server.protocols._wire import hung_up, json_answer, key_owner, read, run_started, takes
from sandbox_server.records import BoxKind
from sandbox_server.sandbox.base import Process

MAX_WAIT_S = 60.0
"""Maximum of `wait_s` per request; proxies between client and server need a longer timeout."""

_MOST_VARIABLES = 1000
Seconds = Annotated[float, Field(gt=0, le=2**31, allow_inf_nan=False)]


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Asked(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")


class NewBox(_Asked):
    """A box to create, of an image or from a snapshot.

    Repeated with the same Idempotency-Key, the request returns the same box.
    """

    image: str | None = Field(None, min_length=1, max_length=400)
    snapshot: str | None = Field(None, min_length=1, max_length=300)
    """Id or name of a snapshot, instead of `image`; its size and environment are the request's defaults."""
    size: str | None = Field(None, max_length=100)
    """Name of a size in SANDBOX_BOX_SIZES."""
    lifetime_s: Seconds | None = None
    """Default: SANDBOX_BOX_DEFAULT_S."""
    env: dict[str, str] = Field({}, max_length=_MOST_VARIABLES)
    """Environment variables of every command in the box."""
    metadata: dict[str, str] = Field({}, max_length=_MOST_VARIABLES)
    task_image: Literal["sealed", "raw"] | None = None
    """How to start a task's image: `sealed`, as sessions see it, or `raw`, with the history after HEAD, for graders."""
    user: str = Field("", max_length=100)
    """User of commands and files that name none; default: SANDBOX_BOX_USER."""
    network: Literal["bridge", "none"] | None = None
    """none: no network, even if one is allowed. The response has the network that the box got."""

    @model_validator(mode="after")
    def _one_of_both(self) -> "NewBox":
        if (self.image is None) == (self.snapshot is None):
            raise ValueError("give either image or snapshot")
        return self


class BoxDetail(_Shown):
    """A box. Times are Unix seconds."""

    sid: str
    state: Literal["live", "ended"]
    paused: bool
    """The box is live but must be resumed before it can be used."""
    image: str
    node: str
    container_id: str
    """"" while the box has no container: paused with its files only, or hibernated (SANDBOX_HIBERNATE_S)."""
    created_at: float
    ends_at: float
    network: str
    cpus: float
    memory_mb: int
    user: str
    metadata: dict[str, str]


class Life(_Asked):
    """A new lifetime."""

    lifetime_s: Seconds
    """Seconds from now until the box's end."""


class NewCommand(_Asked):
    """A command to run. Its Idempotency-Key becomes its id; a repeated request with the same key does not run again."""

    cmd: str | None = Field(None, min_length=1)
    """Run by `bash -l -c`, with the image's PATH (SANDBOX_BOX_LOGIN_PATH)."""
    argv: list[str] | None = Field(None, min_length=1)
    """Program and arguments, run without a shell; instead of `cmd`."""
    user: str | None = Field(None, min_length=1, max_length=100)
    env: dict[str, str] = Field({}, max_length=_MOST_VARIABLES)
    cwd: str | None = Field(None, min_length=1)
    """Absolute; default: the user's home."""
    timeout_s: Seconds | None = None
    """Seconds until the command and its descendants are killed; default: none, they may run until the box ends."""
    stdin: str | None = None
    """The whole standard input; default: empty."""
    wait_s: float = Field(0.0, ge=0, le=MAX_WAIT_S)
    """Seconds that the response waits for the command's end."""

    @model_validator(mode="after")
    def _one_of_both(self) -> "NewCommand":
        if (self.cmd is None) == (self.argv is None):
            raise ValueError("give either cmd or argv")
        return self


class CommandDetail(_Shown):
    """A command; its output is given once it has ended."""

    id: str
    state: Literal["running", "ended"]
    pid: int
    exit_code: int | None
    """null while it runs; -1: a signal ended it."""
    signal: int | None
    timed_out: bool
    error: str
    """Why the command could not be run; "" if it could."""
    duration_s: float
    stdout: str
    """Bytes that are not UTF-8 are replaced."""
    stderr: str
    dropped: dict[str, int]
    """Bytes dropped from the middle of each stream (SANDBOX_BOX_OUTPUT_MB)."""
    notice: str
    """What happened to the session, for example that it was restored on another host; usually ""."""


_REFUSALS = refusals(404, 503)
_GONE = refusals(404, 410, 500)

ROUTER = APIRouter(prefix="/v1/boxes", tags=["boxes"])

_ID = "^[A-Za-z0-9._:-]{1,128}$"
CommandId = Annotated[str, Path(pattern=_ID)]


@ROUTER.post("", response_model=BoxDetail, status_code=201, responses=_REFUSALS, openapi_extra=takes(NewBox))
async def create_box(request: Request) -> Response:
    """Create a box. 404: no such image or snapshot, or not allowed; 503: no room.

    If the client disconnects, the box is discarded.
    """
    wanted = await read(request, NewBox)
    asked = BoxRequest(
        kind=BoxKind.NATIVE,
        image=wanted.image or "",
        snapshot=wanted.snapshot or "",
        metadata=wanted.metadata
        | ({SIZE_KEY: wanted.size} if wanted.size else {})
        | ({VIEW_KEY: wanted.task_image} if wanted.task_image else {}),
        env=wanted.env,
        user=wanted.user,
        timeout_s=wanted.lifetime_s,
        internet=False if wanted.network == "none" else None,
        owner=key_owner(request),
        run=await run_started(request),
        idempotency_key=request.headers.get("idempotency-key", ""),
    )
    view = await box_creation_of(request).create_while(asked, hung_up(request))
    if view is None:
        return json_answer({})  # the client has disconnected
    return json_answer(box_detail(view), 201)


@ROUTER.get("/{sid}", response_model=BoxDetail, responses=_REFUSALS)
async def show_box(request: Request, sid: Sid) -> Response:
    """A box, live or ended."""
    return json_answer(box_detail(await boxes_of(request).get(sid)))


@ROUTER.delete("/{sid}", status_code=204, responses=_REFUSALS)
async def kill_box(request: Request, sid: Sid) -> Response:
    """End a box and everything in it. 404: it is unknown or has ended."""
    if not await boxes_of(request).kill(sid):
        raise UnknownSession(f"no box {sid}, or it has ended")
    return Response(status_code=204)


@ROUTER.post("/{sid}/lifetime", response_model=BoxDetail, responses=_REFUSALS, openapi_extra=takes(Life))
async def prolong_box(request: Request, sid: Sid) -> Response:
    """Set the box's end to `lifetime_s` from now, earlier or later than before."""
    life = await read(request, Life)
    return json_answer(box_detail(await boxes_of(request).set_timeout(sid, life.lifetime_s)))


@ROUTER.post("/{sid}/commands", response_model=CommandDetail, responses=_GONE, openapi_extra=takes(NewCommand))
async def run_command(request: Request, sid: Sid) -> Response:
    """Run a command and wait up to `wait_s` for its end. 410: it ran before, and its result is no longer known."""
    wanted = await read(request, NewCommand)
    command_id = _key(request) or secrets.token_hex(12)
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        asked = wanted.model_dump(exclude={"wait_s"}, exclude_none=True)
        begun, notice = await asyncio.shield(spawn(request, session_boxes_of(request).run(sid, command_id, asked)))
        return await _session_reply(request, begun, wanted.wait_s, notice)
    await boxes.here(view)
    argv = wanted.argv or ["/bin/bash", "-l", "-c", wanted.cmd or ""]
    command = CommandLine(argv, env=wanted.env, cwd=wanted.cwd)

    async def begin() -> Process:
        path = view.box.image_path if boxes.policy.login_path == "image" else ""
        sandbox = await boxes.sandbox(view)
        return await sandbox.start(
            argv if wanted.argv else [argv[0], *with_path(argv[0], argv[1:], path)],
            cwd=wanted.cwd,
            env={**view.box.env, **wanted.env},
            user=wanted.user or view.box.user,
            stdin=wanted.stdin is not None,
            timeout_s=wanted.timeout_s,
            home_cwd=True,
        )

    stdin = None if wanted.stdin is None else wanted.stdin.encode("utf-8", "surrogatepass")
    hashed = _hash(wanted) if _key(request) else ""
    box_command = await _commands(request).run(view, command_id, command, begin, stdin, asked=hashed)
    return await _reply(request, box_command, wanted.wait_s)


@ROUTER.get("/{sid}/commands/{command_id}", response_model=CommandDetail, responses=_GONE)
async def wait_for_command(
    request: Request,
    sid: Sid,
    command_id: CommandId,
    wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 0.0,
) -> Response:
    """Return a command as soon as it has ended, or after `wait_s` seconds."""
    in_session, command = await _found(request, sid, command_id)
    return await (_session_reply if in_session else _reply)(request, command, wait_s)


@ROUTER.delete("/{sid}/commands/{command_id}", response_model=CommandDetail, responses=_GONE)
async def kill_command(request: Request, sid: Sid, command_id: CommandId) -> Response:
    """Kill a command and its descendants and return its end. No effect on a command that has ended."""
    in_session, command = await _found(request, sid, command_id)
    command.killed = not command.over.is_set()
    await command.running.process.kill_tree()
    return await (_session_reply if in_session else _reply)(request, command, MAX_WAIT_S)


def _commands(request: Request) -> Commands:
    return cast(Commands, request.app.state.commands)


async def _found(request: Request, sid: str, command_id: str) -> tuple[bool, BoxCommand]:
    """(whether `sid` is a session's, the command); both must be on this node."""
    boxes = boxes_of(request)
    view = await boxes.find(sid)
    if view is None:
        return True, await session_boxes_of(request).find(sid, command_id)
    await boxes.here(view)
    return False, await _commands(request).find(sid, command_id)


async def _session_reply(request: Request, command: BoxCommand, wait_s: float, notice: str = "") -> Response:
    """Wait up to `wait_s` for the end of a session's command, write it to the journal, and respond."""
    more = await asyncio.shield(spawn(request, session_boxes_of(request).wait(command, wait_s)))
    return await _reply(request, command, 0.0, notice or more)


async def _reply(request: Request, command: BoxCommand, wait_s: float, notice: str = "") -> Response:
    await command.wait(wait_s)
    if command.over.is_set():
        _commands(request).delivered(command)
    end = command.end if command.over.is_set() else None
    return json_answer(
        {
            "id": command.command_id,
            "state": "running" if end is None else "ended",
            "pid": command.running.pid,
            "exit_code": None if end is None else end.exit_code,
            "signal": None if end is None else end.signal,
            "timed_out": end is not None and end.timed_out,
            "error": "" if end is None else end.error,
            "duration_s": round(command.duration_s, 6),
            "stdout": command.stdout.text(),
            "stderr": command.stderr.text(),
            "dropped": {"stdout": command.stdout.dropped, "stderr": command.stderr.dropped},
            "notice": notice,
        }
    )


def _hash(wanted: NewCommand) -> str:
    """Hash of a request; leaves out `wait_s`, which may differ when the request is repeated."""
    return hashlib.sha256(json.dumps(wanted.model_dump(exclude={"wait_s"}), sort_keys=True).encode()).hexdigest()


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if key and not re.fullmatch(_ID, key):
        raise MalformedRequest("Idempotency-Key becomes the id, so it must be 1 to 128 letters, digits and . _ : -")
    return key


def box_detail(view: BoxView) -> dict[str, object]:
    """The fields of a `BoxDetail`."""
    record, box = view.record, view.box
    return {
        "sid": view.sid,
        "state": "live" if view.live else "ended",
        "paused": view.paused,
        "image": box.image,
        "node": record.node,
        "container_id": record.container_id,
        "created_at": record.created_at,
        "ends_at": view.ends_at,
        "network": box.network,
        "cpus": box.cpus,
        "memory_mb": box.memory_mb,
        "user": box.user,
        "metadata": dict(box.metadata),
    }
