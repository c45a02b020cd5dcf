"""Tool calls and rewards of a session for MCP and OpenEnv. Not a plugin, hence the underscore.

A call becomes an action as /process_action makes one: same turn, journal, replay and limits.
"""

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import urlsplit

from fastapi import Request
from starlette.requests import HTTPConnection

from sandbox_server.actions import handed_over
from sandbox_server.actions.content import scalar_text
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import Forbidden, InfrastructureError, ServiceError
from sandbox_server.protocols._apart import spawn
from sandbox_server.protocols._wire import idempotency_key
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.sessions.base import ActionAnswer, Sessions
from sandbox_server.telemetry import INFRA_ERRORS, logger

log = logger(__name__)

_WRONG = frozenset(("bad_call", "bad_parameter", "no_answer", "no_call", "refused", "unknown_tool"))
"""Outcomes of calls that ran nothing because the policy wrote them wrong."""
_PENDING = "the grading has not ended yet; ask for the reward again"


@dataclass(frozen=True, slots=True)
class AgentBounds:
    """From the settings of the same names."""

    origins: frozenset[str] = frozenset()
    reward_wait_s: float = 45.0
    openenv_connections: int = 2048
    openenv_idle_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Told:
    """The result of an action, for a policy."""

    text: str
    is_error: bool
    """The call was written wrong, or the service could not run it; a command that fails is none."""
    error_code: str
    """As in `ActionAnswer`."""
    facts: Mapping[str, object]
    """`seq`, `tool`, `outcome` and `exit_code` as in the journal; `error` if the text is the service's own."""


def bounds_of(connection: HTTPConnection) -> AgentBounds:
    """The server's bounds."""
    return cast(AgentBounds, connection.app.state.agents)


def check_origin(connection: HTTPConnection) -> None:
    """Return unless a web page of elsewhere sent this: its name may have been made to lead here (DNS rebinding).

    Raises:
        Forbidden.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin.rstrip("/").lower() in bounds_of(connection).origins or _is_here(origin):
        return
    raise Forbidden(f"Requests of pages from {origin[:200]!r} are refused; SANDBOX_AGENT_ORIGINS allows more.")


def _is_here(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def call(request: Request, sid: str, *, via: str, tool: str, arguments: Mapping[str, object]) -> Told:
    """Run a call of `tool` in the session, which must be the caller's or unknown."""
    told = await act(request, sid, handed_over.written(via, tool, arguments))
    return replace(told, text=handed_over.told(told.text))


async def act(request: Request, sid: str, content: str) -> Told:
    """Run a policy's text in the session, which must be the caller's or unknown."""
    acting = cast(Sessions, request.app.state.sessions).act(sid, content, idempotency_key=idempotency_key(request))
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
    return Told(scalar_text(answer.content), wrong, answer.error_code, facts)


async def reward(request: Request, sid: str) -> RewardAnswer:
    """The session's reward, which ends it; `pending` if there is none within SANDBOX_AGENT_REWARD_WAIT_S."""
    asking = spawn(request, cast(Sessions, request.app.state.sessions).reward(sid))
    try:
        async with asyncio.timeout(bounds_of(request).reward_wait_s):
            return await asyncio.shield(asking)
    except TimeoutError:
        return RewardAnswer(Verdict(VerdictName.PENDING, mask=True, cause=_PENDING), 0.0)
    except ServiceError as error:
        log.error("no verdict", sid=sid, code=counted(error), error=error.detail)
        return RewardAnswer(Verdict(VerdictName.INFRA, mask=True, cause=error.detail), 0.0)


async def task_of(request: Request, sid: str) -> TaskInstance:
    """The instance of the session. Raises UnknownSession, UnknownInstance, StateUnavailable, CatalogueUnavailable."""
    view = await cast(Sessions, request.app.state.sessions).view(sid)
    return await named_task(request, view.record.instance_id)


async def named_task(request: Request, named: int | str) -> TaskInstance:
    """The instance with this hash or id. Raises UnknownInstance, CatalogueUnavailable."""
    return await cast(Instances, request.app.state.instances).named(named)


def counted(error: ServiceError) -> str:
    """The error's code; a fault of the service is counted."""
    if isinstance(error, InfrastructureError):
        INFRA_ERRORS.labels(error.code).inc()
    return error.code
