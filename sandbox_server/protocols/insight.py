"""Many sessions at once: their health in one word, groups, runs, pass rates, and export of whole runs."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from typing import Annotated, cast

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict

from sandbox_server import clock
from sandbox_server.catalogue.insight.records import Group, GroupKind, PassRate, SessionFilter
from sandbox_server.insight.health_rules import Word, jumps
from sandbox_server.insight.overview import Insight, Overview
from sandbox_server.insight.rates import DAY_S, Day, by_day
from sandbox_server.insight.wall_time import Wall
from sandbox_server.protocols._filters import InstanceId, Run, Since
from sandbox_server.protocols._parts import instances_of, sessions_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._wire import json_answer
from sandbox_server.sessions.base import Sessions
from sandbox_server.verdicts import VerdictName

_PAGE = 200
_AT_ONCE = 5


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ShownFinding(_Shown):
    """A rule that holds; docs/seeing.md lists all rules."""

    word: Word
    rule: str
    why: str
    see: str
    """Path below /v1, and below /ui, that shows the details."""


class ShownCount(_Shown):
    """Sessions with the same verdict; `reward` is the sum of their rewards."""

    verdict: VerdictName
    mask: bool
    count: int
    reward: float


class ShownWall(_Shown):
    """Mean times of the window's rollouts, in seconds; of more than 300 only the last 300 that ended count."""

    sessions: int
    seconds: dict[str, float]
    """By stage, in the order of a rollout."""
    total_s: float
    gap_s: float
    """Mean time between two actions."""


class ShownRate(_Shown):
    """An instance's unmasked verdicts of the last day, and of the seven days before it."""

    instance_id: str
    resolved: int
    graded: int
    resolved_before: int
    graded_before: int


class ShownDay(_Shown):
    """An instance's gradings of one day (UTC)."""

    begin: float
    graded: int
    """Number of unmasked gradings."""
    resolved: int
    """Number of unmasked gradings with the verdict `resolved`."""
    masked: int
    grade_s: float | None
    """Median seconds of the unmasked gradings of patches."""


class ShownCheck(_Shown):
    """The last result of `instances verify`: the verdicts of the gold patch and of an empty one."""

    gold: str
    empty: str
    at: float


class ShownHistory(_Shown):
    """The 2,000 newest gradings of one instance, by day; the newest day first."""

    instance_id: str
    check: ShownCheck | None
    days: list[ShownDay]


class ShownUnsound(_Shown):
    """An instance in use although its last check failed."""

    instance_id: str
    gold: str
    empty: str
    sessions: int


class ShownOverview(_Shown):
    """The sessions' health in one word, and its evidence."""

    at: float
    window_s: float
    run: str | None
    word: Word
    findings: list[ShownFinding]
    """All rules that hold; the first one determines the word."""
    now: list[ShownCount]
    before: list[ShownCount]
    """The same window a day earlier."""
    causes: dict[str, int]
    """Masked verdicts by the kind of their cause."""
    ends: dict[str, int]
    groups: dict[GroupKind, int]
    masked_members: int
    wall: ShownWall
    wall_before: ShownWall
    wall_by_run: dict[str, ShownWall]
    fell: list[ShownRate]
    rose: list[ShownRate]
    unsound: list[ShownUnsound]
    tripwires: dict[str, int]
    """Signs of tampering -> number of sessions that have them."""
    tripped: dict[str, list[str]]
    """Signs of tampering -> sids of the sessions with them that ended last, at most three."""


class ShownGroup(_Shown):
    """The graded sessions of one run and one instance; `/v1/sessions?run=&instance=` lists them."""

    run: str
    instance_id: str
    kind: GroupKind
    graded: int
    masked: int
    least: float | None
    most: float | None
    mean: float | None
    first: float
    last: float


class ShownRun(_Shown):
    """The sessions of one run."""

    run: str
    sessions: int
    lost: int
    graded: int
    masked: int
    resolved: int
    mean_reward: float | None
    first: float
    last: float


_DOWN = refusals(503)

ROUTER = APIRouter(prefix="/v1", tags=["v1"])

Limit = Annotated[int, Query(ge=1, le=1000)]
Window = Annotated[float, Query(ge=60, le=86_400)]


@ROUTER.get("/overview", response_model=ShownOverview, responses=_DOWN)
async def show_overview(request: Request, run: Run = None, window_s: Window = 3600.0) -> Response:
    """The health of one run or all in one word; compares this window with the same one a day earlier."""
    return json_answer(overview_fields(await insight_of(request).overview(run=run, window_s=window_s)))


@ROUTER.get("/groups", response_model=list[ShownGroup], responses=_DOWN)
async def list_groups(
    request: Request,
    run: Run = None,
    instance: InstanceId = None,
    kind: GroupKind | None = None,
    since: Since = None,
    limit: Limit = 100,
) -> Response:
    """Groups with a session graded since `since` (default: a day ago), the last graded first."""
    return json_answer([group_fields(one) for one in await groups_of(request, run, instance, kind, since, limit)])


@ROUTER.get("/runs", response_model=list[ShownRun], responses=_DOWN)
async def list_runs(request: Request, since: Since = None, limit: Limit = 100) -> Response:
    """Runs with a session started since `since` (default: a day ago), the newest first."""
    runs = await insight_of(request).counts.runs(_since(since, DAY_S), limit=limit)
    return json_answer([asdict(run) for run in runs])


@ROUTER.get("/pass-rates", response_model=list[ShownRate], responses=_DOWN)
async def list_pass_rates(request: Request, limit: Limit = 100) -> Response:
    """Instances graded within the last eight days: first those whose pass rate jumped, then the most graded."""
    return json_answer([asdict(rate) for rate in await pass_rates_of(request, limit)])


@ROUTER.get("/pass-rates/{instance_id:path}", response_model=ShownHistory, responses=refusals(404, 503))
async def show_history(
    request: Request, instance_id: Annotated[str, Path(min_length=1, max_length=400, pattern="^[^\\x00]+$")]
) -> Response:
    """The results of one instance day by day, and of its last check."""
    instances = instances_of(request)
    await instances.by_id(instance_id)
    check = await instances.verified(instance_id)
    return json_answer(
        {
            "instance_id": instance_id,
            "check": None if check is None else asdict(check),
            "days": [asdict(day) for day in await days_of(request, instance_id)],
        }
    )


@ROUTER.get(
    "/export",
    response_class=Response,
    responses={**_DOWN, 200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
async def export(request: Request, run: Run = None, since: Since = None, actions: bool = False) -> Response:
    """Sessions with rewards, masks and causes, one JSON object per line, newest first; `actions`: with journals."""
    sessions = sessions_of(request)
    lines = _lines(sessions, SessionFilter(run=run, since=since), actions=actions)
    first = await anext(lines, b"")  # so that a database that is down gives a 503, not a truncated response
    return StreamingResponse(_chained(first, lines), media_type="application/x-ndjson")


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


async def _lines(sessions: Sessions, wanted: SessionFilter, *, actions: bool) -> AsyncIterator[bytes]:
    """Yield lines, fetching one page of sessions and one page of actions at a time."""
    while page := await sessions.list(wanted, limit=_PAGE):
        for seen in page:
            if not seen.record.kind.is_rollout:
                continue
            line = json.dumps(await _exported(sessions, seen.record.sid)).encode()
            if not actions:
                yield line + b"\n"
                continue
            yield line[:-1] + b', "actions": ['
            async for piece in _actions(sessions, seen.record.sid):
                yield piece
            yield b"]}\n"
        if len(page) < _PAGE:
            return
        last = page[-1].record
        wanted = SessionFilter(run=wanted.run, since=wanted.since, before=(last.created_at, last.sid))


async def _actions(sessions: Sessions, sid: str) -> AsyncIterator[bytes]:
    """A session's journal as the elements of a JSON list, a few at a time: each may be SANDBOX_MAX_BODY_MB long."""
    after = 0
    while some := await sessions.actions(sid, after=after, limit=_AT_ONCE):
        for one in some:
            yield (b", " if after else b"") + json.dumps(asdict(one)).encode()
            after = one.seq
            await asyncio.sleep(0)


async def _exported(sessions: Sessions, sid: str) -> dict[str, object]:
    view = await sessions.view(sid)
    record, graded = view.record, view.graded
    return {
        "sid": sid,
        "run": record.run,
        "instance_id": record.instance_id,
        "state": record.state,
        "node": record.node,
        "created_at": record.created_at,
        "ended_at": record.ended_at,
        "end_reason": record.end_reason,
        "verdict": None if graded is None else graded.verdict.name.value,
        "mask": None if graded is None else graded.verdict.mask,
        "cause": record.cause if graded is None else graded.verdict.cause,
        "reward": None if graded is None else graded.reward,
        "reward_name": None if graded is None else graded.reward_name,
        "receipt": None if graded is None else graded.receipt,
        "graded_at": None if graded is None else graded.graded_at,
        "patch_sha256": None if view.patch is None else view.patch.sha256,
        "timings_s": view.timings_s,
        "metrics": dict(view.metrics),
    }


async def groups_of(
    request: Request, run: str | None, instance: str | None, kind: GroupKind | None, since: float | None, limit: int
) -> list[Group]:
    """The groups of a query; with `kind`, only the 5,000 groups graded last are searched."""
    most = limit if kind is None else 5000
    found = await insight_of(request).counts.groups(_since(since, DAY_S), run=run, instance=instance, limit=most)
    return [group for group in found if kind in (None, group.kind)][:limit]


async def pass_rates_of(request: Request, limit: int) -> list[PassRate]:
    """Pass rates of the last day and of the seven days before it."""
    rates = await insight_of(request).rates.now()
    fell, rose, _ = await jumps(rates)
    first = {one.instance_id: one for one in (*fell, *rose)}
    rest = sorted(rates, key=lambda one: (-one.graded, -one.graded_before, one.instance_id))
    return list((first | {one.instance_id: one for one in rest}).values())[:limit]


async def days_of(request: Request, instance_id: str) -> list[Day]:
    """The instance's newest gradings by day."""
    gradings = await insight_of(request).listing.verdicts_of(instance_id)
    return by_day((summary, grade_s) for _, summary, grade_s in gradings)


def overview_fields(overview: Overview) -> dict[str, object]:
    """The overview as JSON fields, without its nodes, which /v1/nodes shows."""
    shown = asdict(overview)
    del shown["nodes"]
    return shown | {
        "wall": wall_fields(overview.wall),
        "wall_before": wall_fields(overview.wall_before),
        "wall_by_run": {run: wall_fields(wall) for run, wall in overview.wall_by_run.items()},
    }


def wall_fields(wall: Wall) -> Mapping[str, object]:
    """As JSON fields."""
    return {**asdict(wall), "total_s": wall.total_s}


def group_fields(group: Group) -> dict[str, object]:
    """As JSON fields."""
    return {**asdict(group), "kind": group.kind.value}


def insight_of(request: Request) -> Insight:
    """The server's `Insight`."""
    return cast(Insight, request.app.state.insight)


def _since(since: float | None, default_s: float) -> float:
    return clock.now() - default_s if since is None else since
