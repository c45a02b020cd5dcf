"""/healthz: the process is alive. /readyz: the parts that sessions need answer. /metrics: for Prometheus."""

import asyncio
from collections.abc import Mapping
from typing import cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from sandbox_server.app.parts import Probe
from sandbox_server.errors import ServiceError
from sandbox_server.tasks import Loops
from sandbox_server.telemetry import logger

log = logger(__name__)
ROUTER = APIRouter(tags=["operations"])

_PROBE_S = 3.0
"""Timeout of the probes, which run in parallel: load balancers allow about 5 s for a check."""


class Health(BaseModel):
    """The process answers."""

    status: str


class Readiness(BaseModel):
    """Each part: `ok`, or what is wrong with it."""

    ready: bool
    parts: dict[str, str]
    failing_loops: dict[str, str]
    """Loops whose last three rounds failed: name -> last error. They do not make the node unready."""


@ROUTER.get("/healthz")
async def healthz() -> Health:
    """The process is alive; asks nothing else, and needs no key."""
    return Health(status="ok")


@ROUTER.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(request: Request) -> Response:
    """Whether each part that a session needs answers within 3 s; 503 names the one that does not."""
    probes = cast(Mapping[str, Probe], request.app.state.probes)
    answers = await asyncio.gather(*(_ask(name, probe) for name, probe in probes.items()))
    ready = all(answer == "ok" for answer in answers)
    loops = cast(Loops, request.app.state.loops)
    parts = dict(zip(probes, answers, strict=True))
    body = {"ready": ready, "parts": parts, "failing_loops": dict(loops.failing())}
    return JSONResponse(body, status_code=200 if ready else 503)


@ROUTER.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics() -> Response:
    """Counters, gauges and histograms in Prometheus' text format."""
    return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _ask(name: str, probe: Probe) -> str:
    try:
        async with asyncio.timeout(_PROBE_S):
            await probe()
    except TimeoutError:
        return f"no answer within {_PROBE_S:g} s"
    except ServiceError as error:
        return error.detail
    except Exception as error:
        log.exception("readiness probe broke", part=name)
        return f"{type(error).__name__}: {error}"
    return "ok"
