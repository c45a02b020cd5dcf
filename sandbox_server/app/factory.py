"""Creates the application: parts in the lifespan, discovered protocols, and middleware for access and failures."""

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import partial
from typing import cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import SecretStr
from starlette.routing import BaseRoute, Route

from sandbox_server import __version__, plugins, protocols, traces
from sandbox_server.app import failures, health, rights
from sandbox_server.app.access import RequireKey, role_of
from sandbox_server.app.bare_routes import BareRouteMiddleware, bare_routes
from sandbox_server.app.bodies import BoundBody
from sandbox_server.app.box_use import BoxUseMiddleware
from sandbox_server.app.cors import Cors
from sandbox_server.app.forward import Forward
from sandbox_server.app.loop_watch import watched_loop
from sandbox_server.app.parts import Build, Parts
from sandbox_server.app.paths import Paths
from sandbox_server.app.rates import Rates
from sandbox_server.app.session_token import session_of_token
from sandbox_server.app.trace_header import TraceHeader
from sandbox_server.boxes.tunnels import Tunnels
from sandbox_server.grading.localization import composition
from sandbox_server.protocols._agents import AgentBounds
from sandbox_server.protocols._by_host import ByHost
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._traits import Trait
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import Nodes
from sandbox_server.telemetry import logger
from sandbox_server.ui.login import Logins
from sandbox_server.ui.routers import ROUTERS, TRAITS

log = logger(__name__)


def create_app(settings: Settings, build: Build) -> FastAPI:
    """Create the application of one server; `build` opens its parts at startup and closes them at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tracing = traces.sending(os.environ, node=settings.node_id, version=__version__)
        async with watched_loop(), tracing, build(settings) as parts:
            for part in fields(parts):  # routes find the parts in `app.state`, by their names in `Parts`
                setattr(app.state, part.name, getattr(parts, part.name))
            leaving = asyncio.create_task(_leave(app, parts))
            log.info("ready", node=settings.node_id)
            yield
            leaving.cancel()
            log.info("shutting down", node=settings.node_id)

    app = FastAPI(
        title="Sandbox server",
        description="Sandboxes and grading for RL training of software-engineering agents.",
        version=__version__,
        lifespan=lifespan,
        routes=[Route("/openapi.json", _describe), *built_routes(guarded=bool(settings.api_keys))],
        openapi_url=None,  # FastAPI's own routes: one blocks the loop, and its pages load scripts from another host
        # the server has its own traces and metrics; FastAPI would check at each request whether OpenTelemetry is set up
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    keys, view_keys = _texts(settings.api_keys), _texts(settings.view_keys)
    app.state.logins = Logins(role_of(keys, view_keys), [*keys, *view_keys])
    app.state.followed = set()
    app.state.stopping = False  # set by the app's runner, so that endless streams end
    app.state.agents = AgentBounds(
        origins=frozenset(origin.rstrip("/").lower() for origin in settings.agent_origins),
        reward_wait_s=settings.agent_reward_wait_s,
        openenv_connections=settings.openenv_connections,
        openenv_idle_s=settings.openenv_idle_s,
    )
    failures.install(app)
    composition.rewards()  # loads now what would block the loop at the first request
    _add_middleware(app, settings)
    return app


@functools.cache
def built_routes(*, guarded: bool) -> Sequence[BaseRoute]:
    """Routes of all protocols and pages; they check access rights if `guarded`.

    FastAPI would build them at the first request and block the loop for 100 ms of CPU. Here they are built once for all
    applications of a process.
    """
    every = APIRouter(responses=refusals(422, 401, 413, 503))
    guards = [Depends(rights.admit_routed)] if guarded else []
    for router in (health.ROUTER, *_protocols()):
        every.include_router(router, dependencies=guards)
    for pages in ROUTERS:
        every.include_router(pages)
    nowhere = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": [], "query_string": b""}
    for route in every.routes:
        route.matches(nowhere)
    return tuple(every.routes)


def _protocols() -> list[APIRouter]:
    return [cast(APIRouter, router) for router in plugins.discover(protocols, "ROUTER").values()]


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Wrap the routes; the middleware added last sees a request first."""
    admit = rights.admit if settings.api_keys else None
    app.add_middleware(
        BareRouteMiddleware, routes=bare_routes(_protocols()), refuse=failures.service_error, admit=admit
    )
    by_hosts = [cast(ByHost, given) for given in _given("BY_HOST")]
    tunnels = Tunnels(most=settings.box_port_connections, open_s=settings.box_port_open_s)
    for by_host in by_hosts:
        app.add_middleware(
            by_host.answer, tunnels=tunnels, idle_s=settings.box_port_idle_s, refuse=failures.service_error
        )
    app.add_middleware(
        Forward,
        nodes=lambda: cast(Nodes, app.state.nodes),
        timeout_s=settings.forward_timeout_s,
        patience_s=2 * settings.node_ttl_s,
    )
    if settings.box_idle_s or settings.hibernate_s:
        app.add_middleware(BoxUseMiddleware)
    app.add_middleware(failures.UnhandledErrors)
    app.add_middleware(
        BoundBody,
        max_bytes=int(settings.max_body_mb * 2**20),
        timeout_s=settings.body_timeout_s,
        all_bytes=int(settings.bodies_mb * 2**20),
        wait_s=settings.bodies_wait_s,
    )
    if settings.api_keys:
        app.add_middleware(
            Rates, requests_per_min=settings.run_requests_per_min, sent_mb_per_min=settings.run_sent_mb_per_min
        )
        app.add_middleware(
            RequireKey,
            keys=_texts(settings.api_keys),
            view_keys=_texts(settings.view_keys),
            of_token=partial(session_of_token, app.state),
        )
    if settings.box_origins:
        app.add_middleware(Cors, origins=settings.box_origins)
    if traces.wanted(os.environ):
        app.add_middleware(TraceHeader)
    traits = [*TRAITS, *(trait for given in _given("TRAITS") for trait in cast(Sequence[Trait], given))]
    app.add_middleware(Paths, prefix=settings.e2b_prefix, traits=traits)
    for by_host in by_hosts:
        app.add_middleware(by_host.mark, domain=settings.box_domain)


async def _describe(request: Request) -> Response:
    """The schema, which takes 400 ms of CPU at the first request, so it is made on a thread."""
    return JSONResponse(await asyncio.to_thread(request.app.openapi))


def _texts(keys: Iterable[SecretStr]) -> list[str]:
    return [key.get_secret_value() for key in keys]


def _given(attribute: str) -> list[object]:
    """The values of an optional module attribute, from the protocols that define it."""
    modules = (sys.modules[f"{protocols.__name__}.{name}"] for name in plugins.discover(protocols, "ROUTER"))
    return [getattr(module, attribute) for module in modules if hasattr(module, attribute)]


async def _leave(app: FastAPI, parts: Parts) -> None:
    """Stop the server by `app.state.stop`, which its runner sets, once it is drained."""
    await parts.drained.wait()
    log.info("drained")
    app.state.stop()
