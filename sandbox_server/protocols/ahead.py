"""Our own endpoints by which a trainer says what it will start, and starts a whole group at once."""

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from sandbox_server.errors import UnknownInstance
from sandbox_server.protocols._wire import (
    hung_up,
    json_answer,
    key_owner,
    named_instance,
    read,
    refusal,
    run_started,
    takes,
)
from sandbox_server.protocols.v1 import Refused
from sandbox_server.sessions.base import Sessions

_GROUP = 1024
"""Sessions of one group: more than any trainer samples of one instance."""
_ANNOUNCED = 4096
"""Instances of one announcement."""


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class GroupRequest(_Message):
    """Which instance, and how many sessions of it."""

    instance: StrictInt | StrictStr
    """Its hash, as integer or decimal string, or its id."""
    n: Annotated[int, Field(ge=1, le=_GROUP)]


class GroupFault(_Message):
    """Why a session of the group did not start."""

    code: str
    detail: str
    retryable: bool
    reason: str
    """What it lacked: slots, queue, daemon, disk, image, draining; "" for another part's fault."""
    position: int | None
    estimate_s: float | None


class GroupAnswer(_Message):
    """The sessions that were started: all, or those that there was room for."""

    sids: list[str]
    failed: list[GroupFault]


class LookaheadRequest(_Message):
    """The instances of the next steps, the next one first."""

    instances: Annotated[list[StrictInt | StrictStr], Field(max_length=_ANNOUNCED)]
    """Hashes or ids."""


class LookaheadAnswer(_Message):
    """What became of the announcement; GET /v1/pool shows how far it has come."""

    queued: int
    unknown: list[int | str]
    """Not in the catalogue."""
    dropped: int
    """No room in the queue; announce them again later."""


class Shelf(_Message):
    """Containers of one kind."""

    image: str
    parked: int
    """Ready."""
    making: int
    waiting: int
    """Starts that wait for one."""
    wanted: int
    """Starts that are expected soon."""
    instances: list[str]
    """Whose starts are expected."""
    sids: list[str]
    """On the labels of the containers parked or being made; no sessions yet."""


class Failed(_Message):
    """An announced instance that cannot be prepared."""

    instance_id: str
    code: str
    detail: str


class PoolAnswer(_Message):
    """What is ready for starts to come."""

    size: int
    """Parked at most."""
    shelves: list[Shelf]
    preparing: list[str]
    """Announced instances whose image is not ready yet."""
    failures: list[Failed]


_REFUSALS: dict[int | str, dict[str, Any]] = {404: {"model": Refused}, 409: {"model": Refused}, 503: {"model": Refused}}

ROUTER = APIRouter(prefix="/v1", tags=["v1"])


@ROUTER.post("/groups", response_model=GroupAnswer, responses=_REFUSALS, openapi_extra=takes(GroupRequest))
async def start_group(request: Request) -> Response:
    """Start `n` sessions of an instance: the same as n calls of /start_instance, prepared together.

    An error status only when none could be started. A client that hangs up gets none, and none is left.
    """
    group = await read(request, GroupRequest)
    instance, run = named_instance(group.instance), await run_started(request)
    starting = asyncio.create_task(_sessions(request).start_group(instance, group.n, run=run, owner=key_owner(request)))
    left = asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({starting, left}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return json_answer({})  # nobody reads it
        sids, failed = starting.result()
    finally:
        left.cancel()
        if not starting.done():
            starting.cancel()  # it gives back what it has started
            await asyncio.wait({starting})
    return json_answer({"sids": sids, "failed": [refusal(error) for error in failed]})


@ROUTER.post("/lookahead", response_model=LookaheadAnswer, status_code=202, openapi_extra=takes(LookaheadRequest))
async def look_ahead(request: Request) -> Response:
    """Prepare images and park containers for the next steps; answers at once."""
    announced = (await read(request, LookaheadRequest)).instances
    known, unknown = [], []
    for instance in announced:
        try:
            known.append(named_instance(instance))
        except UnknownInstance:
            unknown.append(instance)
    became = asdict(await _sessions(request).look_ahead(known))
    return json_answer({**became, "unknown": [*unknown, *became["unknown"]]}, 202)


@ROUTER.get("/pool", response_model=PoolAnswer)
async def show_pool(request: Request) -> Response:
    """Containers parked, being made and wanted, by image."""
    return json_answer(asdict(_sessions(request).pool()))


def _sessions(request: Request) -> Sessions:
    return cast(Sessions, request.app.state.sessions)
