"""Operations on a run (all sessions and boxes that one trainer starts): end them all, or keep them alive by a lease."""

import math
import re
from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.errors import MalformedRequest
from sandbox_server.fleet.runs import Runs
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import RUN, json_answer, key_owner, read, takes

_DAY_S = 86_400.0


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class LeaseRequest(_Message):
    """The length of a lease."""

    ttl_s: Annotated[float, Field(ge=1, le=_DAY_S)]
    """Seconds from now. Renew the lease four times in this time. A lease below 10 s may expire in a short stall of the
    service, which ends a live run."""


class LeaseAnswer(_Message):
    """When the run's lease ends."""

    run: str
    ends_at: float
    """Unix seconds. If the lease is not renewed, the run's sessions that began before this time end at it."""


class RunEnded(_Message):
    """The sessions of a run that was ended."""

    run: str
    ended: list[str]
    """Sids of those that have ended; their patches are kept and graded, their slots are free."""
    ending: list[str]
    """Sids of those that were still ending after `wait_s`."""


class LeaseReleased(_Message):
    """A run after its lease was released."""

    run: str
    released: bool
    """False: the run had no lease."""


_REFUSALS: dict[int | str, dict[str, Any]] = {
    **refusals(403, 503),
    404: {"description": "The path has a line break: a run's name cannot contain one."},
}

ROUTER = APIRouter(prefix="/v1/runs", tags=["v1"])

Run = Annotated[str, Path(min_length=1, max_length=100)]
Wait = Annotated[float, Query(ge=0, le=100)]


@ROUTER.delete("/{run:path}/sessions", response_model=RunEnded, responses=_REFUSALS)
async def end_sessions(request: Request, run: Run, wait_s: Wait = 60.0) -> Response:
    """End all sessions and boxes that the run has now, for example before a killed trainer starts again."""
    runs = await _own(request, run)
    end = await runs.end(run, owner=key_owner(request), wait_s=wait_s)
    return json_answer({"run": run, "ended": list(end.ended), "ending": list(end.ending)})


@ROUTER.put("/{run:path}/lease", response_model=LeaseAnswer, responses=_REFUSALS, openapi_extra=takes(LeaseRequest))
async def keep(request: Request, run: Run) -> Response:
    """Renew the run's lease. Once a run has a lease, its sessions end if it is not renewed in time."""
    ttl_s = (await read(request, LeaseRequest)).ttl_s
    if not math.isfinite(ttl_s):
        raise MalformedRequest('ttl_s: give a number of seconds, for example {"ttl_s": 60}.')
    runs = await _own(request, run)
    return json_answer({"run": run, "ends_at": await runs.keep(run, ttl_s)})


@ROUTER.delete("/{run:path}/lease", response_model=LeaseReleased, responses=_REFUSALS)
async def release(request: Request, run: Run) -> Response:
    """Release the lease: the run's sessions then end by their own limits only."""
    runs = await _own(request, run)
    return json_answer({"run": run, "released": await runs.release(run)})


async def _own(request: Request, run: str) -> Runs:
    """The run registry, if the key may use the run. Raises MalformedRequest, RunOfAnother."""
    if not re.fullmatch(RUN, run):
        raise MalformedRequest("A run's name must be 1 to 100 letters, digits and . _ : / @ + -")
    runs = cast(Runs, request.app.state.runs)
    await runs.check(run, key_owner(request))
    return runs
