"""Our own endpoints for scoring: batches without a session, a trainer's report on a rollout, means over rollouts."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, cast

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from sandbox_server import clock
from sandbox_server.catalogue.localization.truth import AnswerFormat, RewardItem, Truth
from sandbox_server.catalogue.rollouts import Rollouts
from sandbox_server.errors import MalformedRequest, ServiceError
from sandbox_server.grading.localization.answers import AUTO, FORMATS
from sandbox_server.grading.localization.base import Events, Turn
from sandbox_server.grading.localization.composition import MAX_ITEMS, Composition, compose, shipped, shipped_items
from sandbox_server.protocols._caller import owner_of_caller
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._scores import ShownScore, score_fields
from sandbox_server.protocols._wire import json_answer, key_owner, named_instance, read, run_of, takes
from sandbox_server.scoring.batch_grading import BatchGrading, Graded, GradeItem
from sandbox_server.verdicts import TurnTokens, VerdictName

_TURNS = 10_000
"""Per rollout; far more than any rollout has."""
_DAY_S = 86_400.0


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class TurnRequest(_Message):
    """One message of the policy."""

    tools: Annotated[list[str], Field(max_length=1000)] = []
    """Names of the tools that the message called."""
    prompt_tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    response_tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class EventsRequest(_Message):
    """The turns that led to an answer."""

    turns: Annotated[list[TurnRequest], Field(max_length=_TURNS)]
    """The policy's messages, including the answer."""


Rewards = StrictStr | Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_ITEMS)]
"""The name of a composition shipped with the service, or a list of {fn, weight, args}."""


class GradeItemRequest(_Message):
    """One thing to grade."""

    instance: StrictInt | StrictStr | None = None
    """Hash or id; its localization scores an answer, its grader grades a patch."""
    truth: Truth | None = None
    """The expected locations, instead of the instance's."""
    answer: Any = None
    """The message that answers, or the arguments of a finishing call."""
    messages: Annotated[list[dict[str, Any]], Field(max_length=_TURNS)] | None = None
    """The chat in OpenAI's format; provides the assistant's last answer, the turns and the calls."""
    events: EventsRequest | None = None
    """The turns that led to the answer, instead of those in `messages`."""
    rewards: Rewards | None = None
    """Instead of the request's `rewards`."""
    format: str = AUTO
    """auto, files, file_list, fenced, structured, lines."""
    roots: Annotated[list[str], Field(max_length=100)] = []
    """Absolute prefixes to strip from the answer's paths, besides the instance's own."""
    patch: StrictStr | None = None
    """A diff, graded like a session's; all other fields are then ignored."""


class GradeRequest(_Message):
    """A batch."""

    items: list[GradeItemRequest]
    """At most SANDBOX_GRADE_BATCH."""
    rewards: Rewards | None = None
    """For items that name none; default: the instance's, else the service's."""
    discount: Annotated[float, Field(gt=0, le=1)] | None = None
    """Requires `rewards`: each answer also gets a total per turn, multiplied by this for every turn before the last."""


class _GradeEnvelope(GradeRequest):
    items: list[Any]  # each is parsed on its own, so that a bad item fails alone


class GradeError(BaseModel):
    """Why an item has no total."""

    code: str
    detail: str
    retryable: bool


class GradeAnswer(ShownScore):
    """The result of one item."""

    total: float | None
    """null: masked, or an error; a fault never gives a number."""
    verdict: VerdictName | None
    mask: bool
    cause: str
    error: GradeError | None


class GradeReply(BaseModel):
    """One answer per item, in their order."""

    results: list[GradeAnswer]


class TokensRequest(_Message):
    """The tokens of one turn."""

    prompt: Annotated[int, Field(ge=0, lt=2**53)]
    response: Annotated[int, Field(ge=0, lt=2**53)]


class RolloutRequest(_Message):
    """What the trainer reports about or sets for a live session; omitted fields stay unchanged."""

    rewards: Rewards | None = None
    """How this session is scored."""
    tokens: Annotated[list[TokensRequest], Field(max_length=_TURNS)] | None = None
    """For every turn so far, the first one first."""
    format: AnswerFormat | None = None
    """Format of the answer, from the next action on. The grading uses the format that is set at that time."""


class Mean(BaseModel):
    """The mean of one number over many rollouts."""

    name: str
    count: int
    mean: float
    least: float
    most: float


_REFUSED = refusals(404, 409)

ROUTER = APIRouter(prefix="/v1", tags=["grade"])


@ROUTER.post("/grade", response_model=GradeReply, openapi_extra=takes(GradeRequest))
async def grade(request: Request) -> Response:
    """Grade answers and patches without a session; a bad item gets an `error` and does not affect the others."""
    batch = await read(request, _GradeEnvelope)
    grading = cast(BatchGrading, request.app.state.grading)
    if len(batch.items) > grading.most:
        raise MalformedRequest(f"items: {len(batch.items)}; SANDBOX_GRADE_BATCH allows {grading.most} in one request.")
    if batch.discount is not None and batch.rewards is None:
        raise MalformedRequest("discount: only with rewards.")
    default = None if batch.rewards is None else _composition(batch.rewards, batch.discount)
    items = [_item(value, default) for value in batch.items]
    found = await grading.grade(items, run=run_of(request), owner=key_owner(request))
    return json_answer({"results": [_result(graded) for graded in found]})


@ROUTER.put("/sessions/{sid}/rollout", status_code=204, responses=_REFUSED, openapi_extra=takes(RolloutRequest))
async def report_rollout(request: Request, sid: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> Response:
    """Set a live session's rewards or its answer's format, or report its tokens. 409 once the session has ended."""
    said = await read(request, RolloutRequest)
    if said.rewards is not None:
        _composition(said.rewards, None)
    await sessions_of(request).report(
        sid,
        rewards=None if said.rewards is None else _items(said.rewards),
        tokens=None if said.tokens is None else [TurnTokens(turn.prompt, turn.response) for turn in said.tokens],
        written=said.format,
    )
    return Response(status_code=204)


@ROUTER.get("/metrics/rollout", response_model=list[Mean])
async def rollout_metrics(
    request: Request,
    run: Annotated[str | None, Query(max_length=100, pattern="^[^\\x00]*$")] = None,
    since: Annotated[float | None, Query(ge=0, le=1e12, allow_inf_nan=False)] = None,
) -> Response:
    """Means over the rollouts graded since `since` (Unix seconds; default: a day ago), of one run or all."""
    after = clock.now() - _DAY_S if since is None else since
    found = await cast(Rollouts, request.app.state.rollouts).rollup(
        since=after, run=run, owner=owner_of_caller(request)
    )
    return json_answer([asdict(rollup) for rollup in found])


def _item(value: object, default: Composition | None) -> GradeItem | ServiceError:
    try:
        item = GradeItemRequest.model_validate(value)
        if item.format not in FORMATS:
            return MalformedRequest(f"format: {item.format!r} is not one of {', '.join(FORMATS)}.")
        return GradeItem(
            instance=None if item.instance is None else named_instance(item.instance),
            truth=item.truth,
            answer=item.answer,
            messages=item.messages,
            events=None if item.events is None else _events(item.events),
            composition=default if item.rewards is None else _composition(item.rewards, None),
            patch=None if item.patch is None else item.patch.encode("utf-8", "surrogatepass"),
            roots=tuple(item.roots),
            written=item.format,
        )
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        named = {".".join(map(str, fault["loc"])): fault["msg"] for fault in faults}
        return MalformedRequest("; ".join(f"{name}: {text}" for name, text in named.items()))
    except ServiceError as error:
        return error


def _events(said: EventsRequest) -> Events:
    turns = (Turn(tuple(turn.tools), turn.prompt_tokens, turn.response_tokens) for turn in said.turns)
    return Events(tuple(turns))


def _items(rewards: str | list[RewardItem]) -> list[RewardItem]:
    # a name, never a path: a client must not make the server read files
    if isinstance(rewards, str):
        if rewards not in shipped():
            raise MalformedRequest(f"rewards: there is no composition {rewards!r}; there are {', '.join(shipped())}.")
        return list(shipped_items(rewards))
    return rewards


def _composition(rewards: str | list[RewardItem], discount: float | None) -> Composition:
    try:
        name = rewards if isinstance(rewards, str) else "rewards"
        return compose(_items(rewards), name=name, discount=discount)
    except ValueError as error:
        raise MalformedRequest(str(error)) from None


def _result(graded: Graded) -> dict[str, object]:
    verdict, error = graded.verdict, graded.error
    score: Mapping[str, object] = {"items": [], "answer": None, "steps": [], "flags": []}
    if verdict is not None and verdict.score is not None:
        score = score_fields(verdict.score)
    return {
        "total": graded.total,
        "verdict": None if verdict is None else verdict.name.value,
        "mask": verdict is None or verdict.mask,
        "cause": "" if verdict is None else verdict.cause,
        "error": None if error is None else {"code": error.code, "detail": error.detail, "retryable": error.retryable},
        **score,
    }
