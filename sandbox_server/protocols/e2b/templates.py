"""Templates: build them, find them by name and tag, follow their builds, delete them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.boxes.templates import TemplateBuilds, UnknownTemplate, parsed
from sandbox_server.catalogue.templates import (
    BUILDING,
    ERROR,
    READY,
    WAITING,
    BuildState,
    LogEntry,
    Recipe,
    Step,
    Template,
)
from sandbox_server.errors import MalformedRequest, RequestTooLarge
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.protocols._flow import with_idle_timeout
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols._parts import boxes_of, snapshots_of
from sandbox_server.protocols._traits import PREFIX
from sandbox_server.protocols._wire import json_answer, key_owner, read
from sandbox_server.protocols.e2b import wire

ROUTER = APIRouter(include_in_schema=False)  # documented by E2B
UPLOADS = "/templates-upload/"
"""Prefix of the paths of uploads, which need no API key: the path holds a secret."""
_MOST_LOGS = 100
_MOST_OFFSET = 10**6


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")


class NewBuild(_Message):
    """POST /v3/templates; with `alias`, POST /v2/templates."""

    name: str = ""
    alias: str = ""
    tags: list[str] = []
    cpuCount: Annotated[float | None, Field(gt=0, le=1024)] = None
    memoryMB: Annotated[int | None, Field(ge=64, le=2**24)] = None


class GivenStep(_Message):
    """One step."""

    type: str
    args: list[str] = []
    filesHash: str | None = None
    force: bool = False


class Start(_Message):
    """POST /v2/templates/{id}/builds/{build}."""

    fromImage: str | None = None
    fromTemplate: str | None = None
    fromImageRegistry: dict[str, object] | None = None
    force: bool = False
    steps: list[GivenStep] = []
    startCmd: str | None = None
    readyCmd: str | None = None


class Tags(_Message):
    """POST and DELETE /templates/tags."""

    target: str = ""
    name: str = ""
    tags: list[str] = []


@ROUTER.post("/v3/templates")
@ROUTER.post("/v2/templates")
async def request_build(request: Request) -> Response:
    """202 with a new build of the named template."""
    asked = await read(request, NewBuild)
    build = await _builds(request).request(
        key_owner(request), asked.name or asked.alias, asked.tags, asked.cpuCount, asked.memoryMB
    )
    return json_answer(
        {
            "templateID": build.template_id,
            "buildID": build.build_id,
            "public": False,
            "names": [build.name],
            "aliases": [build.name],
            "tags": list(build.tags),
        },
        202,
    )


@ROUTER.post("/v2/templates/{template_id}/builds/{build_id}")
async def start(request: Request, template_id: str, build_id: str) -> Response:
    """202; the build waits for its turn."""
    asked = await read(request, Start)
    if asked.fromImageRegistry is not None:
        raise MalformedRequest(
            "fromImageRegistry is not supported: have the operator log the engine in to the registry"
        )
    if bool(asked.fromImage) == bool(asked.fromTemplate):
        raise MalformedRequest("give one of fromImage and fromTemplate")
    builds = _builds(request)
    state = await builds.build_of(owner_of_caller(request), template_id, build_id)
    forced = asked.force or any(step.force for step in asked.steps)
    recipe = Recipe(
        image=asked.fromImage or "",
        steps=tuple(Step(kind=one.type, args=tuple(one.args), files_hash=one.filesHash or "") for one in asked.steps),
        start=asked.startCmd or "",
        ready=asked.readyCmd or "",
        nonce=build_id if forced else "",
    )
    await builds.trigger(state.build, recipe, asked.fromTemplate or "")
    return Response(status_code=202)


@ROUTER.get("/templates/{template_id}/files/{files_hash}")
async def upload_link(request: Request, template_id: str, files_hash: str) -> Response:
    """201: whether the archive is stored already, and where to upload it."""
    present, token = await _builds(request).expect_file(owner_of_caller(request), template_id, files_hash)
    base = str(request.base_url).rstrip("/")
    if request.headers.get("x-forwarded-proto") == "https":
        base = "https://" + base.partition("://")[2]
    return json_answer({"present": present, "url": f"{base}{request.scope.get(PREFIX, '')}{UPLOADS}{token}"}, 201)


@ROUTER.put(UPLOADS + "{token}")
async def upload(request: Request, token: str) -> Response:
    """Store an archive."""
    builds = _builds(request)
    room = await builds.room_for(token)
    body = bytearray()
    with builds.uploading():
        async for chunk in with_idle_timeout(request.stream()):
            body += chunk
            if len(body) > room:
                raise RequestTooLarge(
                    f"the archive is larger than {room >> 20} MB (SANDBOX_TEMPLATE_FILES_MB and _TOTAL_MB); copy less"
                )
        await builds.store.put_file(token, bytes(body))
    return Response(status_code=200)


@ROUTER.get("/templates/{template_id}/builds/{build_id}/status")
async def status(request: Request, template_id: str, build_id: str) -> Response:
    """The build's status, with at most 100 entries of its log from `logsOffset` on."""
    state = await _builds(request).build_of(owner_of_caller(request), template_id, build_id)
    build = state.build
    answer: dict[str, object] = {
        "templateID": build.template_id,
        "buildID": build.build_id,
        "status": _status(state),
        "logs": [],
        "logEntries": _entries(request, state),
    }
    if state.status == ERROR:
        answer["reason"] = {"message": build.reason, "logEntries": [], **({"step": build.step} if build.step else {})}
    return json_answer(answer)


@ROUTER.get("/templates/{template_id}/builds/{build_id}/logs")
async def logs(request: Request, template_id: str, build_id: str) -> Response:
    """At most 100 entries of the build's log from `logsOffset` on."""
    state = await _builds(request).build_of(owner_of_caller(request), template_id, build_id)
    return json_answer({"logs": _entries(request, state)})


@ROUTER.get("/templates/aliases/{alias:path}")
async def alias_of(request: Request, alias: str) -> Response:
    """The template of this name, if it has a ready build with the given tag, or with any tag if none is given."""
    if boxes_of(request).policy.mapped(alias):
        return json_answer({"templateID": alias, "public": True})
    builds, owner, (name, given) = _builds(request), key_owner(request), parsed(alias)
    with suppress(UnknownTemplate):
        template = await builds.find(owner, name)
        for tag in [given] if given else [one.tag for one in await builds.store.tags(template.template_id)]:
            if await builds.ready(owner, f"{name}:{tag}") is not None:
                return json_answer({"templateID": template.template_id, "public": False})
    raise UnknownTemplate("this template does not exist or has no ready build: build it first")


@ROUTER.post("/templates/tags")
async def add_tags(request: Request) -> Response:
    """201; the tags name the build of `target` from now on."""
    asked = await read(request, Tags)
    build_id = await _builds(request).tag(owner_of_caller(request), asked.target, asked.tags)
    return json_answer({"buildID": build_id, "tags": asked.tags}, 201)


@ROUTER.delete("/templates/tags")
async def remove_tags(request: Request) -> Response:
    """204."""
    asked = await read(request, Tags)
    builds = _builds(request)
    template = await builds.find(owner_of_caller(request), asked.name)
    await builds.store.untag(template.template_id, asked.tags)
    return Response(status_code=204)


@ROUTER.get("/templates/{template_id}/tags")
async def list_tags(request: Request, template_id: str) -> Response:
    """The template's tags."""
    tags = await _builds(request).tags(owner_of_caller(request), template_id)
    return json_answer(
        [{"tag": one.tag, "buildID": one.build_id, "createdAt": wire.when(one.created_at).isoformat()} for one in tags]
    )


@ROUTER.get("/templates")
@ROUTER.get("/v2/templates")
async def list_templates(request: Request) -> Response:
    """The caller's templates that have been built."""
    builds = _builds(request)
    return json_answer(
        [await _shown(builds, template) for template in await builds.store.listed(owner_of_caller(request))]
    )


@ROUTER.get("/templates/{template_id}")
async def info(request: Request, template_id: str) -> Response:
    """A template with its builds."""
    builds = _builds(request)
    template = await builds.find(owner_of_caller(request), template_id)
    states = await builds.store.builds(template.template_id)
    return json_answer(await _shown(builds, template) | {"builds": [_build(state) for state in states]})


@ROUTER.delete("/templates/{template_id}")
async def delete(request: Request, template_id: str) -> Response:
    """204; running sandboxes of the template live on. If the id or name is a snapshot's, deletes that."""
    builds, owner = _builds(request), owner_of_caller(request)
    try:
        template = await builds.find(owner, template_id)
    except UnknownTemplate:
        if await snapshots_of(request).delete(owner, template_id):
            return Response(status_code=204)
        raise
    await builds.store.delete(template.template_id)
    return Response(status_code=204)


def _builds(request: Request) -> TemplateBuilds:
    return cast(TemplateBuilds, request.app.state.templates)


def _entries(request: Request, state: BuildState) -> list[Mapping[str, object]]:
    query = request.query_params
    offset = whole(query.get("logsOffset", "0"), _MOST_OFFSET) or 0
    most = min(whole(query.get("limit", str(_MOST_LOGS)), _MOST_OFFSET) or _MOST_LOGS, _MOST_LOGS)
    return [_entry(entry) for entry in state.log[offset : offset + most]]


def _entry(entry: LogEntry) -> Mapping[str, object]:
    return {"timestamp": wire.when(entry.at).isoformat(), "level": entry.level, "message": entry.message}


def _status(state: BuildState) -> str:
    """E2B's word for the state: `waiting` before the build is started; a build in the queue is `building`."""
    return BUILDING if state.status == WAITING and state.node else state.status


def _build(state: BuildState) -> dict[str, object]:
    build = state.build
    times = {"createdAt": wire.when(build.created_at).isoformat(), "updatedAt": wire.when(state.updated_at).isoformat()}
    if state.status in (READY, ERROR):
        times["finishedAt"] = times["updatedAt"]
    return {"buildID": build.build_id, "status": _status(state), **_size(state), **times}


def _size(state: BuildState | None) -> dict[str, object]:
    build = None if state is None else state.build
    cpus, memory_mb = (None, None) if build is None else (build.cpus, build.memory_mb)
    return {"cpuCount": round(cpus or 0), "memoryMB": memory_mb or 0, "diskSizeMB": 0, "envdVersion": wire.ENVD_VERSION}


async def _shown(builds: TemplateBuilds, template: Template) -> dict[str, object]:
    states = await builds.store.builds(template.template_id)
    newest = states[0] if states else None
    return {
        "templateID": template.template_id,
        "buildID": newest.build.build_id if newest else "",
        "buildStatus": _status(newest) if newest else WAITING,
        "public": False,
        "aliases": [template.name],
        "names": [template.name],
        "createdAt": wire.when(template.created_at).isoformat(),
        "updatedAt": wire.when(newest.updated_at if newest else template.created_at).isoformat(),
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": len(states),
        **_size(newest),
    }
