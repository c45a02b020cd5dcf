"""Our own endpoints for a trainer that starts a whole group at once or announces its next instances."""

from dataclasses import asdict
from typing import Annotated, Self

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

from sandbox_server.errors import UnknownInstance
from sandbox_server.protocols._caller import check_session
from sandbox_server.protocols._disconnects import group_answer
from sandbox_server.protocols._forks import copies
from sandbox_server.protocols._parts import fleet_of, sessions_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import (
    idempotency_key,
    json_answer,
    key_owner,
    named_instance,
    read,
    run_started,
    takes,
)

_GROUP = 1024
"""Sessions per group; more than any trainer samples per instance."""
_ANNOUNCED = 4096
"""Instances per announcement."""


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class GroupRequest(_Message):
    """The size of a group, and what its sessions start from: an instance, or another session."""

    instance: StrictInt | StrictStr | None = None
    """Its hash, as integer or decimal string, or its id."""
    source: Annotated[StrictStr | None, Field(alias="from", pattern="^[0-9]{1,19}$")] = None
    """Sid of the session to copy, instead of `instance`."""
    at: Annotated[StrictInt, Field(ge=0, le=2**31)] | None = None
    """Number of that session's action after which the copies continue; null: after its last one."""
    n: Annotated[int, Field(ge=1, le=_GROUP)]

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.instance is None) == (self.source is None):
            raise ValueError("name one of the two: an `instance` to start, or the sid of a session to copy as `from`")
        if self.at is not None and self.source is None:
            raise ValueError("`at` is the number of an action of the session in `from`; without `from` leave it out")
        return self


class GroupFault(_Message):
    """Why a session of the group did not start."""

    code: str
    detail: str
    retryable: bool
    reason: str
    """The missing resource: slots, queue, daemon, disk, data, image, bodies, draining; "" for another fault."""
    position: int | None
    estimate_s: float | None


class GroupAnswer(_Message):
    """The sessions that were started, and a reason for each that was not."""

    sids: list[str]
    failed: list[GroupFault]


class LookaheadRequest(_Message):
    """The instances of the next steps, the next one first."""

    instances: Annotated[list[StrictInt | StrictStr], Field(max_length=_ANNOUNCED)]
    """Hashes or ids."""


class LookaheadAnswer(_Message):
    """The result of an announcement; GET /v1/pool shows its progress."""

    queued: int
    unknown: list[int | str]
    """Not in the catalogue."""
    dropped: int
    """Not queued because the queue is full; announce them again later."""


class Bucket(_Message):
    """Pooled containers of one kind."""

    image: str
    parked: int
    """Ready containers."""
    making: int
    waiting: int
    """Starts that wait for such a container."""
    wanted: int
    """Starts expected soon."""
    instances: list[str]
    """Instances of the expected starts."""
    sids: list[str]
    """Sids on the labels of the containers that are parked or being created; they have no sessions yet."""


class Failed(_Message):
    """An announced instance that cannot be prepared."""

    instance_id: str
    code: str
    detail: str


class PoolAnswer(_Message):
    """What is ready for future starts."""

    size: int
    """Maximum number of parked containers."""
    buckets: list[Bucket]
    preparing: list[str]
    """Announced instances whose image is not ready yet."""
    failures: list[Failed]


_REFUSALS = refusals(404, 409, 503)

ROUTER = APIRouter(prefix="/v1", tags=["v1"])


@ROUTER.post("/groups", response_model=GroupAnswer, responses=_REFUSALS, openapi_extra=takes(GroupRequest))
async def start_group(request: Request) -> Response:
    """Start `n` sessions of an instance, as n calls of /start_instance would, but prepared together.

    With `from`, start `n` copies of a session, as POST /v1/sessions/{sid}/fork does. The status is an error only if no
    session could be started. If the client disconnects, all are discarded. A request that is repeated with the same
    Idempotency-Key header within some minutes gets the same sids.
    """
    group = await read(request, GroupRequest)
    if group.source is not None:
        await check_session(request, group.source)
        return await copies(request, group.source, group.n, group.at)
    assert group.instance is not None
    instance, run = named_instance(group.instance), await run_started(request)
    starting = sessions_of(request).start_group(
        instance, group.n, run=run, owner=key_owner(request), idempotency_key=idempotency_key(request)
    )
    return await group_answer(request, starting)


@ROUTER.post("/lookahead", response_model=LookaheadAnswer, status_code=202, openapi_extra=takes(LookaheadRequest))
async def look_ahead(request: Request) -> Response:
    """Prepare images and park containers for the next steps; responds at once."""
    announced = (await read(request, LookaheadRequest)).instances
    known, unknown = [], []
    for instance in announced:
        try:
            known.append(named_instance(instance))
        except UnknownInstance:
            unknown.append(instance)
    became = asdict(await fleet_of(request).look_ahead(known))
    return json_answer({**became, "unknown": [*unknown, *became["unknown"]]}, 202)


@ROUTER.get("/pool", response_model=PoolAnswer)
async def show_pool(request: Request) -> Response:
    """Containers parked, being created and wanted, by image."""
    return json_answer(asdict(fleet_of(request).pool()))
