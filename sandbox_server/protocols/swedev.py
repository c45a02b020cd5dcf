"""veRL's `swedev` protocol: start, act, postprocess, reward.

Its clients ignore the HTTP status and read a missing field as "Error" or as reward 0.0. So anything that a policy or a
fault can cause on a known or unknown session is a 200 whose body reports it; 4xx means that the request itself is
wrong, 5xx that there was no room for a start.

A sid is a JSON integer, a decimal string or null (a rollout whose start failed continues with null or 0). Only the
canonical spelling names a session: no sign, no leading zero, no space, below 2^63. Anything else is an unknown
session.
"""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictInt, StrictStr

from sandbox_server.errors import InfrastructureError, MalformedRequest, ServiceError
from sandbox_server.protocols._background import settle, spawn
from sandbox_server.protocols._caller import canonical_sid, own_sid
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._scores import ShownAnswer, ShownItem, reward_fields
from sandbox_server.protocols._starting import started
from sandbox_server.protocols._steps import NextStep, next_step
from sandbox_server.protocols._wire import (
    idempotency_key,
    json_answer,
    named_instance,
    read,
    refusal,
    retry_after,
    takes,
)
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.sessions.base import ActionAnswer
from sandbox_server.telemetry import INFRA_ERRORS, logger
from sandbox_server.verdicts import Verdict, VerdictName

log = logger(__name__)


def _without_surrogates(value: object) -> object:
    """Replace lone surrogates, which JSON can contain but no encoding can represent, by U+FFFD."""
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        value.encode()  # for a long text, takes a third of the time of the search below
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    return value


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


def _no_float(value: object) -> object:
    """Reject a sid that was converted to a float: it may have lost its last digits."""
    if isinstance(value, float | bool):
        raise ValueError(
            f"a sid is an integer, its digits as a string, or null, not the JSON {type(value).__name__} {value!r};"
            " keep it as the start gave it (an int64 tensor, not a float one)"
        )
    return value


class StartRequest(_Message):
    """Which instance to start."""

    instance_hash: StrictInt | StrictStr
    """int(md5(instance_id)) mod 2^63, as integer or decimal string; any other string is read as an instance id."""
    after: Annotated[StrictInt | StrictStr | None, BeforeValidator(_no_float)] = None
    """For a later step of a task: the ended session of the step before."""


class StartAnswer(_Message):
    """The started session."""

    sid: str
    """Decimal, 0 < sid < 2^63."""


class SessionRequest(_Message):
    """The session."""

    sid: Annotated[StrictInt | StrictStr | None, BeforeValidator(_no_float)]
    """The sid as the start returned it, or as an integer."""


class ActionRequest(SessionRequest):
    """One action of the policy."""

    content: Annotated[StrictStr, BeforeValidator(_without_surrogates)]
    """The policy's text, in the instance's dialect."""


class Fault(_Message):
    """Why the answer was written by the service, not by the policy's command."""

    code: str
    detail: str


class ActionReply(_Message):
    """The observation."""

    content: str
    """Always text to show to the policy."""
    error: Fault | None = None
    """Set if `content` is the service's own text: sandbox_lost, unknown_session, session_busy, ..."""


class PostprocessReply(_Message):
    """The session's end."""

    sid: str = ""
    state: str = ""
    """ending, ended or lost; "" for an unknown session."""
    cause: str = ""
    """Why there is no patch, or what is left out of it; absent if there is nothing to say."""
    next: NextStep | None = None
    """The next step of a task of several steps; absent otherwise."""
    error: Fault | None = None


class RewardReply(_Message):
    """Verdict and reward; docs/api.md has the table of verdicts."""

    reward: float
    f2p_count: int
    f2p_total: int
    p2p_count: int
    p2p_total: int
    resolved: bool
    patch_is_None: bool
    patch_exists: bool
    patch_successfully_applied: bool
    patch_succesfully_applied: bool
    """The same, in the protocol's spelling."""
    verdict: VerdictName
    mask: bool
    """The reward says nothing about the policy: leave the sample out of the loss."""
    cause: str
    """One sentence."""
    receipt: str
    """Id for /v1/receipts; "" if nothing was stored."""
    items: list[ShownItem] | None = None
    """The components of the reward. This and the next three fields are for code search and Harbor's tasks."""
    answer: ShownAnswer | None = None
    """The parsed answer; null: there was none."""
    steps: list[float] | None = None
    flags: list[str] | None = None


class Refusal(_Message):
    """Why a request was refused."""

    code: str
    detail: str
    retryable: bool
    reason: str = ""
    """What it lacked (status 503): slots, queue, daemon, disk, data, image, bodies, draining; "" for another fault."""
    position: int | None = None
    """1-based position in the queue (status 503); null: the request was in no queue."""
    estimate_s: float | None = None
    """Estimated seconds until the request's turn (status 503), from recent releases of slots; null: not known."""


ROUTER = APIRouter(lifespan=settle, tags=["swedev"])


@ROUTER.post(
    "/start_instance",
    response_model=StartAnswer,
    responses={404: {"model": Refusal}, 409: {"model": Refusal}, 503: {"model": Refusal}},
    openapi_extra=takes(StartRequest),
)
async def start_instance(request: Request) -> Response:
    """Start a session. 404: no such instance; 409: not gradable, or its task is over; 503: no room, with Retry-After.

    With an Idempotency-Key header, a repeated request returns the same session for some minutes, while it is live.
    """
    asked = await read(request, StartRequest)
    instance = named_instance(asked.instance_hash)
    try:
        after = "" if asked.after is None else await own_sid(request, asked.after)
        sid = await started(request, instance, after=after)
    except InfrastructureError as error:
        _counted(error)
        return json_answer(refusal(error), 503, retry_after(error))
    return json_answer({} if sid is None else {"sid": sid})


@ROUTER.post("/process_action", response_model=ActionReply, openapi_extra=takes(ActionRequest))
async def process_action(request: Request) -> Response:
    """Run one action and return its observation. With an Idempotency-Key header, a repeated request runs once."""
    action = await read(request, ActionRequest)
    key = idempotency_key(request)
    try:
        sid = await own_sid(request, action.sid)
        acting = sessions_of(request).act(sid, action.content, idempotency_key=key)
        answer = await asyncio.shield(spawn(request, acting))
    except MalformedRequest:
        raise
    except ServiceError as error:
        answer = ActionAnswer(error.detail, _counted(error))
    reply: dict[str, object] = {"content": answer.content}
    if answer.error_code:
        reply["error"] = {"code": answer.error_code, "detail": answer.content}
    return json_answer(reply)


@ROUTER.post("/postprocess", response_model=PostprocessReply, openapi_extra=takes(SessionRequest))
async def postprocess(request: Request) -> Response:
    """End the session: keep its patch, remove its container, start its grading. Repeated calls get the same answer."""
    sid = canonical_sid(asked := (await read(request, SessionRequest)).sid)
    try:
        sid = await own_sid(request, asked)
        record = await asyncio.shield(spawn(request, sessions_of(request).postprocess(sid)))
    except ServiceError as error:
        return json_answer({"sid": sid, "error": {"code": _counted(error), "detail": error.detail}})
    if record is None:
        return json_answer(
            {
                "error": {
                    "code": "unknown_session",
                    "detail": "There is no such session: its start failed or it ended long ago.",
                }
            }
        )
    remark = {"cause": record.cause} if record.cause else {}
    step = await next_step(request, record)
    return json_answer({"sid": record.sid, "state": record.state, **remark, **({"next": step} if step else {})})


@ROUTER.post("/compute_reward", response_model=RewardReply, openapi_extra=takes(SessionRequest))
async def compute_reward(request: Request) -> Response:
    """Return the session's verdict and reward; `pending` if it is not graded within SANDBOX_REWARD_WAIT_S."""
    sid = canonical_sid(asked := (await read(request, SessionRequest)).sid)
    try:
        sid = await own_sid(request, asked)
        answer = await sessions_of(request).reward(sid)
    except ServiceError as error:
        log.error("no verdict", sid=sid, code=_counted(error), error=error.detail)
        answer = RewardAnswer(Verdict(VerdictName.INFRA, mask=True, cause=error.detail), 0.0)
    return json_answer(reward_fields(answer))


def _counted(error: ServiceError) -> str:
    if isinstance(error, InfrastructureError):
        INFRA_ERRORS.labels(error.code).inc()
    return error.code
