"""The control plane: create, find, prolong and end sandboxes. The API key has been checked before."""

import re
from contextlib import suppress
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.planning import BoxRequest
from sandbox_server.errors import MalformedRequest, RequestError, SandboxRunning, UnknownSession
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.protocols._parts import box_creation_of, boxes_of
from sandbox_server.protocols._wire import hung_up, json_answer, key_owner, read, run_started
from sandbox_server.protocols.e2b import listing, wire
from sandbox_server.records import BoxKind, OnTimeout

Model = TypeVar("Model", bound=BaseModel)

ROUTER = APIRouter(include_in_schema=False)  # documented by E2B
_MAX_KEY = 200
_OTHERS = (
    "/sandboxes",
    "/v2/sandboxes",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/snapshots",
    "/volumes",
    "/secrets",
)
"""Paths of E2B's API with operations that are not implemented here; they get a clear error."""


class Unimplemented(RequestError):
    """An operation or a field of E2B's API that this server does not implement."""

    code = "unimplemented"
    http_status = 501


@ROUTER.post("/sandboxes")
@ROUTER.post("/v2/sandboxes")
async def create(request: Request) -> Response:
    """201 with a running sandbox."""
    body = await read(request, wire.NewSandbox)
    files_only = body.autoPauseMemory is False
    if files_only and body.autoPause and body.autoResume.enabled:
        raise MalformedRequest("autoResume cannot resume a sandbox whose pause keeps no memory: leave out one of both")
    if unsupported := wire.unsupported_field(body):
        raise Unimplemented(f"{unsupported} is not implemented by this server: leave it out")
    key = request.headers.get("idempotency-key", "")
    if len(key) > _MAX_KEY:
        raise MalformedRequest(f"Idempotency-Key is longer than {_MAX_KEY} characters.")
    network = body.network
    asked = BoxRequest(
        BoxKind.E2B,
        template=body.templateID,
        metadata=body.metadata,
        env=body.envVars,
        timeout_s=body.timeout,
        on_timeout=_on_timeout(body.autoPause) or OnTimeout.KILL,
        timeout_files=files_only,
        auto_resume=body.autoResume.enabled,
        internet=body.allow_internet_access,
        allow_out=tuple(network.allowOut),
        deny_out=tuple(network.denyOut),
        private=network.allowPublicTraffic is False,
        host_mask=network.maskRequestHost,
        owner=key_owner(request),
        run=await run_started(request),
        idempotency_key=key,
    )
    view = await box_creation_of(request).create_while(asked, hung_up(request))
    if view is None:
        return json_answer({})  # the client has disconnected
    return json_answer(wire.sandbox(view, boxes_of(request).policy.domain), 201)


@ROUTER.post("/sandboxes/{sid}/connect")
@ROUTER.post("/v2/sandboxes/{sid}/connect")
async def connect(request: Request, sid: str) -> Response:
    """The sandbox as after a create; it ends no earlier than `timeout` seconds from now. 201: it was resumed."""
    body = await body_of(request, wire.Connect)
    boxes = boxes_of(request)
    timeout_s = round(boxes.policy.default_s) if body.timeout is None else body.timeout
    if (await _live(request, sid)).paused:
        with suppress(SandboxRunning):  # another request resumed it first
            view = await boxes.resume(sid, timeout_s, memory=body.memory is not False)
            return json_answer(wire.sandbox(view, boxes.policy.domain), 201)
    return json_answer(wire.sandbox(await boxes.set_timeout(sid, timeout_s, only_longer=True), boxes.policy.domain))


@ROUTER.post("/sandboxes/{sid}/pause")
async def pause(request: Request, sid: str) -> Response:
    """204; 409 if it is already paused. Without `memory` only its files are kept."""
    memory = (await body_of(request, wire.Pause)).memory
    await boxes_of(request).pause(sid_of(sid), memory=memory is not False)
    return Response(status_code=204)


@ROUTER.post("/sandboxes/{sid}/resume")
async def resume(request: Request, sid: str) -> Response:
    """201 with the sandbox as after a create; 409 if it is not paused."""
    body = await body_of(request, wire.Connect)
    view = await boxes_of(request).resume(
        sid_of(sid), body.timeout, memory=body.memory is not False, on_timeout=_on_timeout(body.autoPause)
    )
    return json_answer(wire.sandbox(view, boxes_of(request).policy.domain), 201)


@ROUTER.delete("/sandboxes/{sid}")
async def kill(request: Request, sid: str) -> Response:
    """204; 404 if there is no such sandbox."""
    if not await boxes_of(request).kill(sid_of(sid)):
        raise UnknownSession(f"Sandbox {sid} not found")
    return Response(status_code=204)


@ROUTER.post("/sandboxes/{sid}/timeout")
async def set_timeout(request: Request, sid: str) -> Response:
    """204; sets the sandbox's end to `timeout` seconds from now, earlier or later than before."""
    timeout_s = (await read(request, wire.Timeout)).timeout
    if timeout_s is None:
        raise MalformedRequest("timeout: field required")
    await boxes_of(request).set_timeout(sid_of(sid), timeout_s)
    return Response(status_code=204)


@ROUTER.post("/sandboxes/{sid}/refreshes")
async def refresh(request: Request, sid: str) -> Response:
    """204; sets the sandbox's end to `duration` seconds from now, unless it is later already."""
    duration_s = (await body_of(request, wire.Refresh)).duration
    boxes = boxes_of(request)
    await boxes.set_timeout(
        sid_of(sid), round(boxes.policy.default_s) if duration_s is None else duration_s, only_longer=True
    )
    return Response(status_code=204)


@ROUTER.put("/sandboxes/{sid}/network")
async def set_network(request: Request, sid: str) -> Response:
    """204; from now on the sandbox may reach what the body allows, within the rules for all boxes."""
    wanted = await read(request, wire.Network)
    await boxes_of(request).set_network(
        sid_of(sid), wanted.allow_internet_access, tuple(wanted.allowOut), tuple(wanted.denyOut)
    )
    return Response(status_code=204)


@ROUTER.get("/sandboxes/{sid}")
async def info(request: Request, sid: str) -> Response:
    """All fields of a sandbox."""
    return json_answer(wire.detail(await _live(request, sid), boxes_of(request).policy.domain))


@ROUTER.get("/v2/sandboxes")
async def list_pages(request: Request) -> Response:
    """A page of the running and paused sandboxes; a header has the token for the next page."""
    page = listing.page(await boxes_of(request).list(owner=owner_of_caller(request)), request.query_params)
    headers = {} if page.next is None else {listing.NEXT: page.next}
    return json_answer([wire.listed(view) for view in page.views], headers=headers)


@ROUTER.get("/sandboxes")
async def list_all(request: Request) -> Response:
    """All running sandboxes."""
    views = listing.filtered(await boxes_of(request).list(owner=owner_of_caller(request)), request.query_params)
    return json_answer([wire.listed(view) for view in views if not view.paused])


async def _refused(request: Request) -> Response:
    raise Unimplemented(f"{request.method} {request.url.path} is not implemented by this server")


for _part in _OTHERS:
    ROUTER.add_api_route(_part, _refused, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    ROUTER.add_api_route(_part + "/{rest:path}", _refused, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])


async def _live(request: Request, sid: str) -> BoxView:
    view = await boxes_of(request).get(sid_of(sid))
    if not view.live:
        raise UnknownSession(f"Sandbox {sid} not found: it has ended")
    return view


async def body_of(request: Request, model: type[Model]) -> Model:
    """The body, which may be empty."""
    return await read(request, model) if await request.body() else model()


def _on_timeout(auto_pause: bool | None) -> OnTimeout | None:
    if auto_pause is None:
        return None
    return OnTimeout.PAUSE if auto_pause else OnTimeout.KILL


def sid_of(text: str) -> str:
    """Check that `text` can be a sid. Raises UnknownSession."""
    if not re.fullmatch("[1-9][0-9]{0,18}", text):
        raise UnknownSession(f"Sandbox {text[:60]} not found")
    return text
