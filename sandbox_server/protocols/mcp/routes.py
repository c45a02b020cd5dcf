"""MCP over HTTP: `/mcp` for clients that start their own sessions, `/mcp/sessions/{sid}` for the tools of one session.

Each POST is answered by one JSON object. A mistake of the policy, or a call that the session's state does not allow,
gives a tool result. A JSON-RPC error or an HTTP status means that the client is set up wrong.
"""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import (
    CapacityError,
    MalformedRequest,
    OverQuota,
    ServiceError,
    UnknownInstance,
    UnknownSession,
)
from sandbox_server.protocols import _agents as agents
from sandbox_server.protocols._background import settle, spawn
from sandbox_server.protocols._caller import own_sid
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._scores import reward_fields
from sandbox_server.protocols._starting import started
from sandbox_server.protocols._steps import next_step
from sandbox_server.protocols._tools import Tool, of_server, of_session
from sandbox_server.protocols._wire import json_answer, named_instance, read_json
from sandbox_server.protocols.mcp import rpc as wire
from sandbox_server.protocols.mcp.rpc import Rpc, RpcError

_VIA = "mcp"
_FACTS = "sandbox/"
"""Prefix of the action's facts in a result's `_meta`."""
_CACHED_MS = 60_000
_HOW = "Call `start` first and give its `sid` to every other tool. `reward` grades; `end` gives up."

ROUTER = APIRouter(lifespan=settle, include_in_schema=False)


@ROUTER.post("/mcp")
async def serve(request: Request) -> Response:
    """Answer a message of a client that starts its own sessions. `?instance=`: the default task of `start`."""
    return await _answered(request, "")


@ROUTER.post("/mcp/sessions/{sid}")
async def serve_session(request: Request, sid: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> Response:
    """Answer a message of a client that has the tools of this session only."""
    return await _answered(request, sid)


async def _answered(request: Request, sid: str) -> Response:
    agents.check_origin(request)
    value: object = None
    try:
        try:
            value = await read_json(request)
        except MalformedRequest as error:
            raise RpcError(wire.PARSE_ERROR, error.detail) from None
        rpc = wire.read(value, request.headers)
        if rpc.id is None:
            return Response(status_code=HTTPStatus.ACCEPTED)
        try:
            return json_answer(await _result(request, rpc, sid))
        except RpcError as error:
            if not rpc.modern:  # legacy clients treat an error status as a broken connection
                error.status = HTTPStatus.OK
            raise
    except RpcError as error:
        return json_answer(wire.error(wire.request_id(value), error), error.status)


async def _result(request: Request, rpc: Rpc, sid: str) -> dict[str, object]:
    """The response to a request. Raises RpcError, InfrastructureError, OwnedElsewhere."""
    match rpc.method:
        case "initialize" if not rpc.modern:
            return wire.initialized(rpc, await _instructions(request, sid))
        case "ping" if not rpc.modern:
            return wire.result(rpc, {})
        case "server/discover":
            return wire.discovered(rpc, await _instructions(request, sid))
        case "tools/list":
            return wire.result(rpc, {"tools": list(await _tools(request, sid))}, cache_ms=_CACHED_MS)
        case "tools/call":
            return wire.result(rpc, await _called(request, rpc, sid))
    raise RpcError(wire.NO_METHOD, f"There is no method {rpc.method[:100]!r}.", status=HTTPStatus.NOT_FOUND)


async def _task(request: Request, sid: str) -> TaskInstance | None:
    """The session's instance; None: the session is unknown, or its instance was removed."""
    try:
        return await agents.task_of(request, sid)
    except (UnknownSession, UnknownInstance):
        return None


async def _instructions(request: Request, sid: str) -> str:
    if not sid:
        return f"Sandboxes with repositories to work on. {_HOW}"
    task = await _task(request, sid)
    where = "" if task is None else f" The repository is at {task.workspace}."
    return f"These tools act in one sandbox.{where} Call `submit` when you are done."


async def _tools(request: Request, sid: str) -> tuple[Tool, ...]:
    if not sid:
        return tuple(of_server(request.query_params.get("instance", "")))
    task = await _task(request, sid)
    return tuple(of_session(localizes=task is not None and task.localizes))


async def _called(request: Request, rpc: Rpc, sid: str) -> Mapping[str, object]:
    """The result of a tool call. Raises RpcError."""
    name, arguments = rpc.params.get("name"), rpc.params.get("arguments")
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise RpcError(wire.INVALID_PARAMS, "A call has a name, a string, and arguments, an object.")
    if sid:
        return await _acted(request, sid, name, arguments)
    try:
        if name == "start":
            return await _start(request, arguments)
        named = arguments.get("sid")
        if not isinstance(named, int | str) or isinstance(named, bool):
            if name not in (known := [str(tool["name"]) for tool in of_server("")]):
                return _text(f"Error: there is no tool {name[:100]!r}; there are {', '.join(known)}.", is_error=True)
            return _text(f"Error: {name[:100]!r} needs the sid of a session. {_HOW}", is_error=True)
        own = await own_sid(request, named)
        if name == "reward":
            graded = await agents.reward(request, own)
            return _text(json.dumps(reward_fields(graded) | await agents.following(request, own, graded)))
        if name == "end":
            return await _end(request, own)
    except ServiceError as error:
        return _text(_refused(error), is_error=True)
    return await _acted(request, own, name, {key: value for key, value in arguments.items() if key != "sid"})


async def _acted(request: Request, sid: str, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
    result = await agents.call(request, sid, via=_VIA, tool=name, arguments=arguments)
    meta = {_FACTS + key: value for key, value in result.facts.items()}
    return {**_text(result.text, is_error=result.is_error), "_meta": meta}


async def _start(request: Request, arguments: Mapping[str, object]) -> Mapping[str, object]:
    named = arguments.get("instance", request.query_params.get("instance"))
    if not isinstance(named, int | str) or isinstance(named, bool) or named == "":
        return _text("Error: `start` needs the id of a task, `instance`.", is_error=True)
    task = await agents.named_task(request, named_instance(named))
    before = arguments.get("after")
    if not isinstance(before, int | str | None) or isinstance(before, bool):
        return _text("Error: `after` is the sid of a session.", is_error=True)
    sid = await started(request, task.instance_id, after=await own_sid(request, before) if before else "")
    facts = {"sid": sid, "instance_id": task.instance_id, "workspace": task.workspace}
    return _text(json.dumps({**facts, "problem_statement": task.problem_statement}))


async def _end(request: Request, sid: str) -> Mapping[str, object]:
    sessions = sessions_of(request)
    record = await asyncio.shield(spawn(request, sessions.postprocess(sid)))
    if record is None:
        raise UnknownSession("There is no such session.")
    step = await next_step(request, record)
    return _text(json.dumps({"sid": record.sid, "state": record.state, **({"next": step} if step else {})}))


def _refused(error: ServiceError) -> str:
    again = f" Try again in {error.retry_after_s} s." if isinstance(error, CapacityError | OverQuota) else ""
    return f"Error ({agents.counted(error)}): {error.detail}{again}"


def _text(text: str, *, is_error: bool = False) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}
