"""Runs, a trainer's name for all that it starts: ending one as a whole, and leases by which it says that it lives."""

import math
import re
from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandbox_server.errors import MalformedRequest
from sandbox_server.protocols._wire import RUN, json_answer, key_owner, read, takes
from sandbox_server.protocols.v1 import Refused
from sandbox_server.sessions.runs import Runs

_DAY_S = 86_400.0


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class LeaseRequest(_Message):
    """How long the run lives from now on."""

    ttl_s: Annotated[float, Field(ge=1, le=_DAY_S)]
    """Seconds; say it again before they have passed, four times in that time. Below 10, a short stall of the service
    may end a run that lives."""


class LeaseAnswer(_Message):
    """Until when the run lives."""

    run: str
    ends_at: float
    """Unix seconds; after it the sessions that began before it end."""


class RunEnded(_Message):
    """What became of the run's sessions."""

    run: str
    ended: list[str]
    """Their patches are kept and graded; their slots are free."""
    ending: list[str]
    """The end of these is under way."""


class LeaseReleased(_Message):
    """The run has no lease."""

    run: str
    released: bool
    """False: it had none."""


_REFUSALS: dict[int | str, dict[str, Any]] = {
    403: {"model": Refused},
    404: {"description": "The path has a line break: no run can have such a name."},
    503: {"model": Refused},
}

ROUTER = APIRouter(prefix="/v1/runs", tags=["v1"])

Run = Annotated[str, Path(min_length=1, max_length=100)]
Wait = Annotated[float, Query(ge=0, le=100)]


@ROUTER.delete("/{run:path}/sessions", response_model=RunEnded, responses=_REFUSALS)
async def end_sessions(request: Request, run: Run, wait_s: Wait = 60.0) -> Response:
    """End every session and box that the run has now: before a trainer that was killed begins again."""
    runs = await _own(request, run)
    end = await runs.end(run, owner=key_owner(request), wait_s=wait_s)
    return json_answer({"run": run, "ended": list(end.ended), "ending": list(end.ending)})


@ROUTER.put("/{run:path}/lease", response_model=LeaseAnswer, responses=_REFUSALS, openapi_extra=takes(LeaseRequest))
async def keep(request: Request, run: Run) -> Response:
    """Say that the run lives. Once a run has said so, its sessions end when it does not say it again in time."""
    ttl_s = (await read(request, LeaseRequest)).ttl_s
    if not math.isfinite(ttl_s):
        raise MalformedRequest("ttl_s: it must be a number of seconds.")
    runs = await _own(request, run)
    return json_answer({"run": run, "ends_at": await runs.keep(run, ttl_s)})


@ROUTER.delete("/{run:path}/lease", response_model=LeaseReleased, responses=_REFUSALS)
async def release(request: Request, run: Run) -> Response:
    """Take the lease back: the run's sessions are bound by their own limits alone."""
    runs = await _own(request, run)
    return json_answer({"run": run, "released": await runs.release(run)})


async def _own(request: Request, run: str) -> Runs:
    """Raises MalformedRequest, RunOfAnother."""
    if not re.fullmatch(RUN, run):
        raise MalformedRequest("A run's name is 1 to 100 letters, digits and . _ : / @ + -, no other sign.")
    runs = cast(Runs, request.app.state.runs)
    await runs.check(run, key_owner(request))
    return runs
