"""veRL's `swedev` protocol: start, act, postprocess, reward.

Its clients do not look at the HTTP status, and read a missing field as "Error" or as reward 0.0. So whatever a
policy or a fault can cause on a known or unknown session is a 200 whose body says it; 4xx means that the request
itself is wrong, 5xx that a start found no room.

A sid is a JSON integer, a decimal string or null (a rollout whose start failed goes on with null or 0). Only the
canonical spelling names a session: no sign, no leading zero, no space, below 2^63. All else is an unknown session.
"""

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictInt, StrictStr

from sandbox_server.errors import InfrastructureError, ServiceError
from sandbox_server.protocols._apart import settle, spawn
from sandbox_server.protocols._caller import owns
from sandbox_server.protocols._scores import ShownAnswer, ShownItem, score_fields
from sandbox_server.protocols._wire import (
    hung_up,
    idempotency_key,
    json_answer,
    key_owner,
    named_instance,
    read,
    refusal,
    retry_after,
    run_started,
    takes,
)
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.scoring.rewards import RewardAnswer
from sandbox_server.sessions.base import ActionAnswer, Sessions
from sandbox_server.telemetry import INFRA_ERRORS, logger

log = logger(__name__)

_NO_SESSION = "0"
"""Never minted, so it stands for every spelling that names no session."""


def _without_surrogates(value: object) -> object:
    """JSON may spell half a surrogate pair, which no encoding can carry on; it becomes U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) and not value.isascii() else value


class _Message(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class StartRequest(_Message):
    """Which instance to start."""

    instance_hash: StrictInt | StrictStr
    """int(md5(instance_id)) mod 2^63, as integer or decimal string; any other string is taken as an instance id."""


class StartAnswer(_Message):
    """The session that was started."""

    sid: str
    """Decimal, 0 < sid < 2^63."""


def _no_float(value: object) -> object:
    """A sid that went through a float may have lost its last digits: it is refused, and the reason told."""
    if isinstance(value, float | bool):
        raise ValueError(
            f"a sid is an integer, its digits as a string, or null, not the JSON {type(value).__name__} {value!r};"
            " keep it as the start gave it (an int64 tensor, not a float one)"
        )
    return value


class SessionRequest(_Message):
    """Which session is meant."""

    sid: Annotated[StrictInt | StrictStr | None, BeforeValidator(_no_float)]
    """As the start gave it, or as an integer."""


class ActionRequest(SessionRequest):
    """One action of the policy."""

    content: Annotated[StrictStr, BeforeValidator(_without_surrogates)]
    """What the policy wrote, in the instance's dialect."""


class Fault(_Message):
    """Why the service, not the policy's command, wrote the answer."""

    code: str
    detail: str


class ActionReply(_Message):
    """The observation."""

    content: str
    """Always text to show the policy."""
    error: Fault | None = None
    """Set when `content` is the service's own text: sandbox_lost, unknown_session, session_busy, ..."""


class PostprocessReply(_Message):
    """The session's end."""

    sid: str = ""
    state: str = ""
    """ending, ended or lost; "" for an unknown session."""
    error: Fault | None = None


class RewardReply(_Message):
    """Verdict and reward; the table of verdicts is in docs/api.md."""

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
    """The same, as the protocol spells it."""
    verdict: VerdictName
    mask: bool
    """True where the reward says nothing about the policy."""
    cause: str
    """One sentence."""
    receipt: str
    """Id for /v1/receipts; "" for what is not stored."""
    items: list[ShownItem] | None = None
    """Of tasks of code search only, as the next three: what the reward is made of."""
    answer: ShownAnswer | None = None
    """As it was understood; null: there was none."""
    steps: list[float] | None = None
    flags: list[str] | None = None


class Refusal(_Message):
    """Why a request was not served."""

    code: str
    detail: str
    retryable: bool
    reason: str = ""
    """With 503, what the start lacked: slots, queue, daemon, disk, image, draining; "" for another part's fault."""
    position: int | None = None
    """With 503: its place in the line that it waited in, 1 the next."""
    estimate_s: float | None = None
    """With 503: seconds until its turn, by how fast others had theirs lately."""


ROUTER = APIRouter(lifespan=settle, tags=["swedev"])


@ROUTER.post(
    "/start_instance",
    response_model=StartAnswer,
    responses={404: {"model": Refusal}, 409: {"model": Refusal}, 503: {"model": Refusal}},
    openapi_extra=takes(StartRequest),
)
async def startnamed_instance(request: Request) -> Response:
    """Begin a session. 404: no such instance; 409: it cannot be graded; 503: no room, with Retry-After.

    With an Idempotency-Key header a repeated request gives the same session, for some minutes and while it is live.
    """
    instance = named_instance((await read(request, StartRequest)).instance_hash)
    run = await run_started(request)
    sessions = _sessions(request)
    starting = spawn(request, _start(request, instance, run))
    left = asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({starting, left}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            starting.cancel()  # it may stand in a line, before others whose clients are there
            spawn(request, _give_back(sessions, starting))
            return json_answer({})  # nobody reads it
        return json_answer({"sid": starting.result()})
    except asyncio.CancelledError:
        spawn(request, _give_back(sessions, starting))
        raise
    except InfrastructureError as error:
        _counted(error)
        return json_answer(refusal(error), 503, retry_after(error))
    finally:
        left.cancel()


@ROUTER.post("/process_action", response_model=ActionReply, openapi_extra=takes(ActionRequest))
async def process_action(request: Request) -> Response:
    """Run one action and answer with its observation. With an Idempotency-Key header a repeated request runs once."""
    action = await read(request, ActionRequest)
    key = idempotency_key(request)
    try:
        sid = await _own(request, action.sid)
        acting = _sessions(request).act(sid, action.content, idempotency_key=key)
        answer = await asyncio.shield(spawn(request, acting))
    except ServiceError as error:
        answer = ActionAnswer(error.detail, _counted(error))
    reply: dict[str, object] = {"content": answer.content}
    if answer.error_code:
        reply["error"] = {"code": answer.error_code, "detail": answer.content}
    return json_answer(reply)


@ROUTER.post("/postprocess", response_model=PostprocessReply, openapi_extra=takes(SessionRequest))
async def postprocess(request: Request) -> Response:
    """End the session: its patch is kept, its container goes, its grading begins. Again and again the same answer."""
    sid = _canonical(asked := (await read(request, SessionRequest)).sid)
    try:
        sid = await _own(request, asked)
        record = await asyncio.shield(spawn(request, _sessions(request).postprocess(sid)))
    except ServiceError as error:
        return json_answer({"sid": sid, "error": {"code": _counted(error), "detail": error.detail}})
    if record is None:
        return json_answer({"error": {"code": "unknown_session", "detail": "No such session."}})
    return json_answer({"sid": record.sid, "state": record.state})


@ROUTER.post("/compute_reward", response_model=RewardReply, openapi_extra=takes(SessionRequest))
async def compute_reward(request: Request) -> Response:
    """The session's verdict and reward; waits for a grading under way, then answers `pending`."""
    sid = _canonical(asked := (await read(request, SessionRequest)).sid)
    try:
        sid = await _own(request, asked)
        answer = await _sessions(request).reward(sid)
    except ServiceError as error:
        log.error("no verdict", sid=sid, code=_counted(error), error=error.detail)
        answer = RewardAnswer(Verdict(VerdictName.INFRA, mask=True, cause=error.detail), 0.0)
    return json_answer(_reward_fields(answer))


def _reward_fields(answer: RewardAnswer) -> dict[str, object]:
    verdict = answer.verdict
    scored = {} if verdict.score is None else score_fields(verdict.score)
    return {
        "reward": float(answer.reward),
        "f2p_count": verdict.f2p_count,
        "f2p_total": verdict.f2p_total,
        "p2p_count": verdict.p2p_count,
        "p2p_total": verdict.p2p_total,
        "resolved": verdict.resolved,
        "patch_is_None": verdict.patch_is_none,
        "patch_exists": verdict.patch_exists,
        "patch_successfully_applied": verdict.patch_applied,
        "patch_succesfully_applied": verdict.patch_applied,
        "verdict": verdict.name.value,
        "mask": verdict.mask,
        "cause": verdict.cause,
        "receipt": answer.receipt,
        **scored,
    }


def _canonical(sid: int | str | None) -> str:
    text = str(sid) if isinstance(sid, int) and abs(sid) < 2**63 else sid
    is_canonical = isinstance(text, str) and re.fullmatch("[1-9][0-9]{0,18}", text) and int(text) < 2**63
    return cast(str, text) if is_canonical else _NO_SESSION


def _start(request: Request, instance: int | str, run: str) -> Coroutine[None, None, str]:
    owner, key = key_owner(request), idempotency_key(request)
    return _sessions(request).start(instance, run=run, owner=owner, idempotency_key=key)


async def _own(request: Request, named: int | str | None) -> str:
    """The sid; that of no session where the session is not the API key's."""
    sid = _canonical(named)
    return sid if await owns(request, sid) else _NO_SESSION


async def _give_back(sessions: Sessions, starting: asyncio.Task[str]) -> None:
    """End a session whose sid nobody got."""
    await asyncio.wait({starting})
    if starting.cancelled():
        log.info("client hung up during its start; it was given up")
        return
    try:
        sid = starting.result()
        log.info("client hung up during its start; session closed", sid=sid)
        await sessions.close(sid)
    except ServiceError as error:  # no session came of it, or the reaper will end it when it is idle
        log.info("start without a client", code=error.code, error=error.detail)


def _sessions(request: Request) -> Sessions:
    return cast(Sessions, request.app.state.sessions)


def _counted(error: ServiceError) -> str:
    if isinstance(error, InfrastructureError):
        INFRA_ERRORS.labels(error.code).inc()
    return error.code
