"""OpenEnv over HTTP: reset starts a session, step acts in it, the step that ends the episode returns the reward.

Each request names its session; in OpenEnv's own server these routes are stateless.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import MalformedRequest
from sandbox_server.protocols import _agents as agents
from sandbox_server.protocols._agents import ActionResult
from sandbox_server.protocols._caller import check_session, own_sid
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._starting import started
from sandbox_server.protocols._tools import of_session
from sandbox_server.protocols._wire import json_answer, named_instance, read, takes
from sandbox_server.protocols.openenv import wire
from sandbox_server.protocols.openenv.wire import AskReward, ListTools, ToolCall, observed

_VIA = "openenv"

ROUTER = APIRouter(prefix="/openenv", include_in_schema=False)


class ResetRequest(BaseModel):
    """Which instance to start; other parameters (`seed`, `episode_id`) are ignored."""

    model_config = ConfigDict(extra="ignore")

    instance: StrictInt | StrictStr | None = None
    sid: StrictInt | StrictStr | None = None
    """A session that is already running, to use instead of starting one."""
    after: StrictInt | StrictStr | None = None
    """For a later step of a task: the ended session of the step before."""


class StepRequest(BaseModel):
    """An action in a session."""

    model_config = ConfigDict(extra="ignore")

    action: dict[str, Any]
    sid: StrictInt | StrictStr


@ROUTER.post("/reset", openapi_extra=takes(ResetRequest))
async def reset(request: Request) -> Response:
    """Start a session of `instance`. The observation has the problem and the `sid` that each step must name."""
    agents.check_origin(request)
    asked = await read(request, ResetRequest)
    if asked.sid is not None:
        sid: str | None = await own_sid(request, asked.sid)
        task = await agents.task_of(request, str(sid))
    elif asked.instance is None:
        raise MalformedRequest("instance: reset needs the id of an instance")
    else:
        task = await agents.named_task(request, named_instance(asked.instance))
        after = "" if asked.after is None else await own_sid(request, asked.after)
        sid = await started(request, task.instance_id, after=after)
    return json_answer(_begun(task, sid))


def _begun(task: TaskInstance, sid: str | None) -> dict[str, object]:
    facts = {"sid": sid, "instance_id": task.instance_id, "workspace": task.workspace}
    return observed({"content": task.problem_statement, **facts}, facts)


@ROUTER.post("/step", openapi_extra=takes(StepRequest))
async def step(request: Request) -> Response:
    """Run one action. Once the episode is done, every further step returns its reward again."""
    agents.check_origin(request)
    asked = await read(request, StepRequest)
    action = wire.action_of(asked.action)
    sid = await own_sid(request, asked.sid)
    if isinstance(action, ListTools):
        task = await agents.task_of(request, sid)
        tools = [{**tool, "input_schema": tool["inputSchema"]} for tool in of_session(localizes=task.localizes)]
        return json_answer(observed({"tools": tools}, {"sid": sid}))
    if isinstance(action, AskReward):
        return json_answer(await _ended(request, sid, {"content": ""}, {}))
    if isinstance(action, ToolCall):
        result = await agents.call(request, sid, via=_VIA, tool=action.tool, arguments=action.arguments)
        observation = {"content": result.text, **_of_tool(action.tool, result)}
    else:
        result = await agents.act(request, sid, action.content)
        observation = {"content": result.text}
    if wire.is_over(result):
        return json_answer(await _ended(request, sid, observation, result.facts))
    return json_answer(observed(observation, {"sid": sid, **result.facts}))


async def _ended(
    request: Request, sid: str, observation: Mapping[str, object], facts: Mapping[str, object]
) -> dict[str, object]:
    """The observation that ends the episode: with its reward, and the `next` step of the task if there is one."""
    reward = await agents.reward(request, sid)
    return observed(observation, {"sid": sid, **facts, **await agents.following(request, sid, reward)}, reward)


def _of_tool(name: str, result: ActionResult) -> dict[str, object]:
    """The fields of OpenEnv's own observation of a tool call."""
    kind = "execution_error" if result.error_code else "invalid_args"
    error = {"error_type": kind, "message": result.text} if result.is_error else None
    return {"tool_name": name, "result": result.text, "error": error}


@ROUTER.get("/state")
async def state(request: Request, sid: Annotated[str, Query(pattern="^[0-9]{0,19}$")] = "") -> Response:
    """The session's state and number of actions; without `sid` an empty state."""
    agents.check_origin(request)
    if not sid:
        return json_answer({"episode_id": None, "step_count": 0})
    await check_session(request, sid)
    sessions = sessions_of(request)
    record = (await sessions.view(sid)).record
    facts = {"sid": sid, "instance_id": record.instance_id, "state": record.state}
    return json_answer({"episode_id": sid, "step_count": record.actions, **facts})


@ROUTER.get("/health")
async def health(request: Request) -> Response:
    """Whether the server runs."""
    return json_answer({"status": "healthy"})


@ROUTER.get("/metadata")
async def metadata(request: Request) -> Response:
    """Name, description and version of this environment."""
    return json_answer(wire.METADATA)


@ROUTER.get("/schema")
async def schema(request: Request) -> Response:
    """JSON schemas of actions, observations and states."""
    return json_answer(wire.SCHEMAS)
