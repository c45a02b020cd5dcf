"""The control plane's snapshots and forks of sandboxes: files only, since processes cannot be carried here."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.errors import ServiceError
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.protocols._disconnects import while_connected
from sandbox_server.protocols._parts import boxes_of, forks_of, snapshots_of, snapshotting_of
from sandbox_server.protocols._wire import idempotency_key, json_answer
from sandbox_server.protocols.e2b import listing, wire
from sandbox_server.protocols.e2b.control import Unimplemented, body_of, sid_of
from sandbox_server.protocols.e2b.refusals import refuse

ROUTER = APIRouter(include_in_schema=False)  # documented by E2B
_MOST_FORKS = 20


class NewSnapshot(wire.Message):
    """POST /sandboxes/{id}/snapshots."""

    name: Annotated[str, Field(max_length=300)] = ""
    memory: bool | None = None


class Fork(wire.Message):
    """POST /sandboxes/{id}/fork."""

    timeout: wire.Seconds | None = None
    count: Annotated[int, Field(ge=1, le=_MOST_FORKS)] = 1


@ROUTER.post("/sandboxes/{sid}/snapshots")
async def take(request: Request, sid: str) -> Response:
    """201 with a snapshot of the running sandbox's files; 501 if the body asks for its memory."""
    asked = await body_of(request, NewSnapshot)
    if asked.memory:
        raise Unimplemented(
            "a snapshot has only files here, no memory: ask for mode filesystem, or for none; a pause keeps memory"
        )
    taken = await snapshotting_of(request).take(sid_of(sid), asked.name, idempotency_key=idempotency_key(request))
    return json_answer(wire.snapshot(taken), 201)


@ROUTER.get("/snapshots")
async def list_pages(request: Request) -> Response:
    """A page of the caller's snapshots, newest first; a header has the token for the next page."""
    query = request.query_params
    found = await snapshots_of(request).listed(
        owner_of_caller(request), sid=query.get("sandboxID", ""), name=query.get("name", "")
    )
    page = listing.snapshot_page(found, query)
    headers = {} if page.next is None else {listing.NEXT: page.next}
    return json_answer([wire.snapshot(one) for one in page.items], headers=headers)


@ROUTER.post("/sandboxes/{sid}/fork")
async def fork(request: Request, sid: str) -> Response:
    """201 with an entry for each copy: `sandbox`, or `error` if the copy could not be made."""
    asked = await body_of(request, Fork)
    made = await while_connected(
        request,
        forks_of(request).fork(
            sid_of(sid), asked.count, timeout_s=asked.timeout, idempotency_key=idempotency_key(request)
        ),
    )
    return json_answer([_told(request, one) for one in made or ()], 201)


def _told(request: Request, made: BoxView | ServiceError) -> dict[str, object]:
    if isinstance(made, BoxView):
        return {"sandbox": wire.sandbox(made, boxes_of(request).policy.domain)}
    return {"error": dict(refuse(made, request.headers).body)}
