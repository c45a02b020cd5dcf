"""Tool calls and rewards of a session for MCP and OpenEnv. Not a plugin, hence the underscore.

A call becomes an action with the same turn, journal, replay and limits as one of /process_action.
"""

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urlsplit

from fastapi import Request
from starlette.requests import HTTPConnection

from sandbox_server.actions import protocol_calls
from sandbox_server.actions.content import scalar_text
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import Forbidden, InfrastructureError, ServiceError
from sandbox_server.protocols._background import spawn
from sandbox_server.protocols._parts import instances_of, sessions_of
from sandbox_server.protocols._steps import next_step
from sandbox_server.protocols._wire import idempotency_key
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.sessions.base import ActionAnswer
from sandbox_server.telemetry import INFRA_ERRORS, logger
from sandbox_server.verdicts import Verdict, VerdictName

log = logger(__name__)

_WRONG = frozenset(("bad_call", "bad_parameter", "no_answer", "no_call", "refused", "unknown_tool"))
"""Outcomes of malformed calls, which ran nothing."""
_PENDING = "the grading has not ended yet; ask for the reward again"


@dataclass(frozen=True, slots=True)
class AgentBounds:
    """Bounds on agents' requests; the settings SANDBOX_AGENT_* and SANDBOX_OPENENV_* have the same names."""

    origins: frozenset[str] = frozenset()
    reward_wait_s: float = 45.0
    openenv_connections: int = 2048
    openenv_idle_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action, for a policy."""

    text: str
    is_error: bool
    """The call was malformed, or the service could not run it. A command that fails is no error."""
    error_code: str
    """As in `ActionAnswer`."""
    facts: Mapping[str, object]
    """`seq`, `tool`, `outcome` and `exit_code` as in the journal; `error` if the text is the service's own."""


def bounds_of(connection: HTTPConnection) -> AgentBounds:
    """The server's bounds."""
    return cast(AgentBounds, connection.app.state.agents)


def check_origin(connection: HTTPConnection) -> None:
    """Refuse requests of web pages of other hosts: DNS rebinding lets such a page reach a server on loopback.

    Raises:
        Forbidden: the Origin header is neither loopback nor in SANDBOX_AGENT_ORIGINS.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin.rstrip("/").lower() in bounds_of(connection).origins or _is_here(origin):
        return
    raise Forbidden(f"Web pages of {origin[:200]!r} may not use this server; add the origin to SANDBOX_AGENT_ORIGINS.")


def _is_here(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def call(request: Request, sid: str, *, via: str, tool: str, arguments: Mapping[str, object]) -> ActionResult:
    """Run a call of `tool` in the session. `sid` has passed `check_session` or comes from `own_sid`."""
    result = await act(request, sid, protocol_calls.content_of(via, tool, arguments))
    return replace(result, text=protocol_calls.unwrapped(result.text))


async def act(request: Request, sid: str, content: str) -> ActionResult:
    """Run a policy's text in the session. `sid` as for `call`."""
    acting = sessions_of(request).act(sid, content, idempotency_key=idempotency_key(request))
    try:
        answer = await asyncio.shield(spawn(request, acting))
    except ServiceError as error:
        answer = ActionAnswer(error.detail, counted(error))
    facts: dict[str, object] = {"seq": answer.seq, "tool": answer.tool, "outcome": answer.outcome}
    if answer.exit_code is not None:
        facts["exit_code"] = answer.exit_code
    if answer.error_code:
        facts["error"] = answer.error_code
    wrong = bool(answer.error_code) or answer.outcome in _WRONG
    return ActionResult(scalar_text(answer.content), wrong, answer.error_code, facts)


async def reward(request: Request, sid: str) -> RewardAnswer:
    """End the session and return its reward; `pending` if it is not graded within SANDBOX_AGENT_REWARD_WAIT_S."""
    asking = spawn(request, sessions_of(request).reward(sid))
    try:
        async with asyncio.timeout(bounds_of(request).reward_wait_s):
            return await asyncio.shield(asking)
    except TimeoutError:
        return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=_PENDING), 0.0)
    except ServiceError as error:
        log.error("no verdict", sid=sid, code=counted(error), error=error.detail)
        return RewardAnswer(Verdict(VerdictName.INFRA, mask=True, cause=error.detail), 0.0)


async def following(request: Request, sid: str, answer: RewardAnswer) -> dict[str, object]:
    """`{"next": the fields of NextStep}` if the session with this reward has a next step in its task; else {}."""
    if answer.verdict.name == VerdictName.PENDING:
        return {}  # the session may still be ending
    try:
        ended = spawn(request, sessions_of(request).postprocess(sid))
        record = await asyncio.shield(ended)
    except ServiceError as error:
        log.warning("the next step is not told", sid=sid, code=counted(error), error=error.detail)
        return {}
    step = None if record is None else await next_step(request, record)
    return {"next": step} if step else {}


async def task_of(request: Request, sid: str) -> TaskInstance:
    """The instance of the session. Raises UnknownSession, UnknownInstance, StateUnavailable, CatalogueUnavailable."""
    view = await sessions_of(request).view(sid)
    return await named_task(request, view.record.instance_id)


async def named_task(request: Request, named: int | str) -> TaskInstance:
    """The instance with this hash or id. Raises UnknownInstance, CatalogueUnavailable."""
    return await instances_of(request).named(named)


def counted(error: ServiceError) -> str:
    """Return the error's code; count a fault of the service in `sandbox_infrastructure_errors_total`."""
    if isinstance(error, InfrastructureError):
        INFRA_ERRORS.labels(error.code).inc()
    return error.code
