"""Our own endpoints for people and their tools: sessions past and present, the evidence of verdicts, instances."""

import asyncio
import json
from dataclasses import asdict, astuple
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.instances import InstanceSummary as Summary
from sandbox_server.catalogue.services import McpServer
from sandbox_server.errors import UnknownSession
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._filters import cursor, wanted_sessions
from sandbox_server.protocols._parts import instances_of, sessions_of
from sandbox_server.protocols._refusals import Refused, Sid, refusals
from sandbox_server.protocols._scores import ShownScore, score_fields
from sandbox_server.protocols._steps import ShownStep, step_fields
from sandbox_server.protocols._wire import json_answer
from sandbox_server.records import SessionRecord
from sandbox_server.sessions.base import SessionView
from sandbox_server.slices import sliced
from sandbox_server.verdicts import ConfirmState, VerdictName

_AT_ONCE = 1 << 18  # characters of a journal written before yielding to the event loop


class _Shown(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class SessionSummary(_Shown):
    """A session. Times are Unix seconds."""

    sid: str
    state: SessionState
    instance_id: str
    node: str
    container_id: str
    """"" while the session sleeps, or if it was lost while asleep."""
    asleep: bool
    """It has a checkpoint instead of a container; its next action restores it."""
    created_at: float
    touched_at: float
    """Time of its last action, or of its start."""
    deadline: float
    actions: int
    """Number of actions run."""
    cwd: str
    ended_at: float
    """0.0 while it is live."""
    end_reason: str
    cause: str
    """Why the session was lost; "" if it was not."""
    run: str
    """The run that it belongs to."""
    owner: str
    """Name of the API key that started it; "" for a key without a name."""
    parent: str
    """The session that it is a copy of; "" for none."""
    forked_at: int
    """Number of actions that it inherited from its parent."""
    undone: str
    """Numbers of the actions that rollbacks undid, for example `6-13 20-22`; each range ends with its rollback."""
    restores: int
    """How often it was restored on another node."""


class ListedSession(SessionSummary):
    """A session in a list, with its verdict."""

    verdict: VerdictName | None
    """None until it is graded; so are the next three fields."""
    mask: bool | None
    reward: float | None
    graded_at: float | None


class PatchSummary(_Shown):
    """The session's patch."""

    exists: bool
    """False: there was nothing to take a diff from."""
    bytes: int
    sha256: str
    base_commit: str
    captured_at: float
    cause: str


class ShownConfirmation(_Shown):
    """The outcome of the confirming run (docs/grading.md)."""

    state: ConfirmState
    why: str
    runs: int
    units: int
    tests: int
    seconds: float
    evidence: list[str]
    pays: bool


class GradeSummary(_Shown):
    """The session's grading."""

    verdict: VerdictName
    mask: bool
    reward: float
    reward_name: str
    cause: str
    receipt: str
    graded_at: float
    score: ShownScore | None
    """For code-search tasks: the reward's items and the answer."""
    confirm: ShownConfirmation | None
    """For a verdict with a reward: the outcome of a second run of the patch, with some tests made false on purpose."""
    tripwires: dict[str, int]
    """Signs of tampering in the actions and the patch, with their counts; they do not change the verdict
    (docs/grading.md)."""


class SessionDetail(SessionSummary):
    """A session with its timings, patch, grading and metrics."""

    timings_s: dict[str, float]
    """Stage -> seconds: of its start, its actions (summed) and its grading."""
    verdict: VerdictName | None
    """None until it is graded; then as in `grade`."""
    grade: GradeSummary | None
    patch: PatchSummary | None
    egress_refused: int | None
    """Packets and DNS queries that network rules refused, once the session has ended; null: not counted
    (docs/boxes.md)."""
    metrics: dict[str, Any]
    """Turns, tool calls, seconds and, if the trainer reported them, tokens of the rollout."""


class ActionEntry(_Shown):
    """One entry of a session's journal."""

    sid: str
    seq: int
    content: str
    observation: str
    tool: str
    outcome: str
    exit_code: int | None
    started_at: float
    duration_s: float
    idempotency_key: str


class InstanceSummary(_Shown):
    """A task."""

    instance_id: str
    instance_hash: str
    """Decimal string, because JavaScript and jq lose the last digits of integers this large."""
    dataset: str
    repo: str
    version: str
    grader: str
    """Kind of the grader; "" if the task cannot be graded."""
    ungradable_because: str


class InstanceDetail(InstanceSummary):
    """A task with its problem statement, but without the data that solves or grades it."""

    base_commit: str
    language: str
    workspace: str
    problem_statement: str
    hints: str
    images: list[str]
    workdir: str
    network: str
    allowed_hosts: list[str] | None
    """If the sandbox has a network: the hosts that it may reach, out of those that SANDBOX_BOX_EGRESS allows; null: all
    of those."""
    mcp_servers: list[McpServer]
    """MCP servers for the agent; the program that starts the agent configures them."""
    skills_dir: str
    """Folder in the image with skills for the agent; "" for none."""
    dialect: str | None
    profile: str | None
    f2p_total: int
    p2p_total: int
    eval_timeout_s: float
    step: ShownStep | None
    """Which step of its task it is; null: the task has no steps."""


_NOT_FOUND = refusals(404)
_BUSY: dict[int | str, dict[str, Any]] = {409: {"model": Refused}, 503: {"model": Refused}}

_CURSOR = "Sandbox-Next"
_LISTED: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            _CURSOR: {
                "description": "`before` of the next page; absent on the last one.",
                "schema": {"type": "string"},
            }
        }
    }
}

ROUTER = APIRouter(prefix="/v1", tags=["v1"])

Limit = Annotated[int, Query(ge=1, le=1000)]


@ROUTER.get("/sessions", response_model=list[ListedSession], responses=_LISTED)
async def list_sessions(
    request: Request, wanted: Annotated[SessionFilter, Depends(wanted_sessions)], limit: Limit = 100
) -> Response:
    """Sessions, the newest first; the header Sandbox-Next is the next page's `before`."""
    listed = await sessions_of(request).list(wanted, limit=limit)
    more = {_CURSOR: cursor(listed[-1])} if len(listed) == limit else {}
    return json_answer(await sliced(map(_listed, listed)), headers=more)


@ROUTER.get("/sessions/{sid}", response_model=SessionDetail, responses=_NOT_FOUND)
async def show_session(request: Request, sid: Sid) -> Response:
    """A session with its timings, patch, grading and metrics."""
    return json_answer(_detail(await sessions_of(request).view(sid)))


@ROUTER.delete("/sessions/{sid}", response_model=SessionSummary, responses=_NOT_FOUND | _BUSY)
async def close_session(request: Request, sid: Sid) -> Response:
    """End a session; its patch is kept and graded."""
    record = await sessions_of(request).close(sid)
    if record is None:
        raise UnknownSession.of(sid)
    return json_answer(_summary(record))


@ROUTER.get(
    "/sessions/{sid}/patch",
    response_class=Response,
    responses=refusals(404, 410) | _BUSY | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def show_patch(request: Request, sid: Sid) -> Response:
    """The diff, byte for byte; empty if nothing was changed or no diff could be taken (see the session's `patch`).

    409 while the session is live, 410 if it was lost before a patch was taken.
    """
    patch = await sessions_of(request).patch(sid)
    return Response(patch.diff or b"", media_type="text/plain; charset=utf-8")


@ROUTER.get("/sessions/{sid}/actions", response_model=list[ActionEntry], responses=_NOT_FOUND)
async def list_actions(
    request: Request,
    sid: Sid,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int | None, Query(ge=1, le=1000)] = None,
) -> Response:
    """The journal after number `after`, the oldest action first; all of it, or `limit` actions."""
    texts, since = [], 0
    for action in await sessions_of(request).actions(sid, after=after, limit=limit):
        texts.append(json.dumps(asdict(action)))
        since += len(texts[-1])
        if since > _AT_ONCE:  # a journal may have tens of megabytes; let other requests run in between
            since = 0
            await asyncio.sleep(0)
    return Response(f"[{', '.join(texts)}]", media_type="application/json")


@ROUTER.get("/receipts/{receipt_id}", response_model=dict[str, Any], responses=_NOT_FOUND)
async def show_receipt(
    request: Request, receipt_id: Annotated[str, Path(pattern="^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")]
) -> Response:
    """The evidence of a verdict."""
    return json_answer(await cast(History, request.app.state.receipts).receipt(receipt_id))


@ROUTER.get("/instances", response_model=list[InstanceSummary])
async def list_instances(
    request: Request, limit: Limit = 100, after: Annotated[str, Query(max_length=400, pattern="^[^\\x00]*$")] = ""
) -> Response:
    """Instances, sorted by id. For the next page pass the last id of this one as `after`."""
    summaries = await instances_of(request).list(after=after, limit=limit)
    return json_answer([_instance_summary(summary) for summary in summaries])


@ROUTER.get("/instances/{instance_id:path}", response_model=InstanceDetail, responses=_NOT_FOUND)
async def show_instance(
    request: Request, instance_id: Annotated[str, Path(min_length=1, max_length=400, pattern="^[^\\x00]+$")]
) -> Response:
    """One instance, without data that gives its solution or its tests away."""
    return json_answer(_instance_detail(await instances_of(request).by_id(instance_id)))


def _summary(record: SessionRecord) -> dict[str, object]:
    # not asdict(): it copies the timings too, which took a list of 1000 sessions 40 ms
    return {name: getattr(record, name) for name in SessionSummary.model_fields}


def _listed(seen: SessionWithVerdict) -> dict[str, object]:
    summary = seen.summary
    graded = (None,) * 4 if summary is None else astuple(summary)
    return _summary(seen.record) | dict(zip(("verdict", "mask", "reward", "graded_at"), graded, strict=True))


def _detail(view: SessionView) -> dict[str, object]:
    grade = patch = None
    if view.graded is not None:
        graded = view.graded
        grade = {
            "verdict": graded.verdict.name.value,
            "mask": graded.verdict.mask,
            "reward": graded.reward,
            "reward_name": graded.reward_name,
            "cause": graded.verdict.cause,
            "receipt": graded.receipt,
            "graded_at": graded.graded_at,
            "tripwires": dict(graded.verdict.tripwires),
            "score": None if graded.verdict.score is None else score_fields(graded.verdict.score),
            "confirm": None if graded.verdict.confirm is None else asdict(graded.verdict.confirm),
        }
    if view.patch is not None:
        patch = {
            "exists": view.patch.diff is not None,
            "bytes": len(view.patch.diff or b""),
            "sha256": view.patch.sha256,
            "base_commit": view.patch.base_commit,
            "captured_at": view.patch.captured_at,
            "cause": view.patch.cause,
        }
    verdict = None if grade is None else grade["verdict"]
    return _summary(view.record) | {
        "timings_s": view.timings_s,
        "verdict": verdict,
        "grade": grade,
        "patch": patch,
        "egress_refused": view.record.egress_refused if view.record.egress_refused >= 0 else None,
        "metrics": dict(view.metrics),
    }


def _instance_summary(instance: TaskInstance | Summary) -> dict[str, object]:
    grader = instance.grader
    return {
        "instance_id": instance.instance_id,
        "instance_hash": str(instance.instance_hash),
        "dataset": instance.dataset,
        "repo": instance.repo,
        "version": instance.version,
        "grader": grader if isinstance(grader, str) else grader.kind if grader else "",
        "ungradable_because": instance.ungradable_because,
    }


def _instance_detail(instance: TaskInstance) -> dict[str, object]:
    # listed explicitly, so that a field added to the record stays hidden until somebody exposes it deliberately
    return _instance_summary(instance) | {
        "base_commit": instance.base_commit,
        "language": instance.language,
        "workspace": instance.workspace,
        "problem_statement": instance.problem_statement,
        "hints": instance.hints,
        "images": list(instance.sandbox.images),
        "workdir": instance.sandbox.workdir,
        "network": instance.sandbox.network,
        "allowed_hosts": None if instance.sandbox.allowed is None else list(instance.sandbox.allowed),
        "mcp_servers": [server.model_dump() for server in instance.sandbox.mcp_servers],
        "skills_dir": instance.sandbox.skills_dir,
        "step": instance.step and step_fields(instance.step),
        "dialect": instance.dialect,
        "profile": instance.profile,
        "f2p_total": len(instance.fail_to_pass),
        "p2p_total": len(instance.pass_to_pass),
        "eval_timeout_s": instance.eval_timeout_s,
    }
