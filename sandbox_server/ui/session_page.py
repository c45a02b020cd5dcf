"""The page of one session: its actions (live while it runs), its results, and buttons for operators."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from markupsafe import Markup

from sandbox_server import clock
from sandbox_server.catalogue.insight.records import SessionFilter, SessionTimings, SessionWithVerdict
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import UnknownInstance, UnknownSession
from sandbox_server.insight.wall_time import STAGES, stages_of
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._parts import instances_of, sessions_of
from sandbox_server.protocols.asciicast import show_asciicast
from sandbox_server.records import ActionRecord, SessionRecord
from sandbox_server.sessions.base import Sessions, SessionView
from sandbox_server.ui.pages import form_of, logins_of, seen_by
from sandbox_server.ui.render import FOLDER, HEADERS, page, rendered
from sandbox_server.ui.results import results_of
from sandbox_server.ui.route import PageRoute
from sandbox_server.ui.text import MOST, MOST_ALONE, cut

ROUTER = APIRouter(
    prefix="/ui/sessions", include_in_schema=False, dependencies=[Depends(seen_by)], route_class=PageRoute
)

_PAGE = 50
_AT_ONCE = 5  # actions read at a time, before their texts are cut: one may have SANDBOX_MAX_BODY_MB
_EXPORTED = 2000
_KEPT = MOST - 100  # leaves room for the note about the omitted part
_LOOK_S = 1.0
_LIVE_S = 3600.0
"""A live stream ends after this time, or when the server stops; the page then reconnects."""
_LIVES = 64
"""Maximum number of pages with a live stream on this node."""

Sid = Annotated[str, Path(pattern="^[0-9]{1,19}$")]
After = Annotated[int, Query(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True)
class Shown:
    """An action with its texts cut for a page."""

    seq: int
    tool: str
    outcome: str
    exit_code: int | None
    started_at: float
    duration_s: float
    gap_s: float
    """Time since the previous action or the start, spent by the model."""
    content: str
    content_chars: int
    observation: str
    observation_chars: int

    @property
    def is_cut(self) -> bool:
        """Whether a text was cut; then the action has a page of its own with the whole text."""
        return max(self.content_chars, self.observation_chars) > _KEPT


@ROUTER.get("/{sid}")
async def session(request: Request, sid: Sid, after: After = 0) -> Response:
    """One session, 50 actions at a time."""
    sessions = sessions_of(request)
    view = await sessions.view(sid)
    actions = await _shown(sessions, view.record, after, _PAGE)
    facts = _facts(view, actions, await _task(request, view))
    more = view.record.actions > after + _PAGE
    return await page(
        request, "session.html", **facts, siblings=await _siblings(sessions, view), after=after, more=more, per=_PAGE
    )


@ROUTER.get("/{sid}/actions/{seq}")
async def action(request: Request, sid: Sid, seq: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
    """One action with all its text."""
    view = await sessions_of(request).view(sid)
    found = await sessions_of(request).actions(sid, after=seq - 1, limit=1)
    if not found or found[0].seq != seq:
        raise UnknownSession(f"session {sid} has no action {seq}")
    return await page(request, "action.html", action=found[0], record=view.record, most=MOST_ALONE)


@ROUTER.get("/{sid}/export")
async def export(request: Request, sid: Sid) -> Response:
    """One HTML file that works without the server; at most 2,000 actions."""
    view = await sessions_of(request).view(sid)
    actions = await _shown(sessions_of(request), view.record, 0, _EXPORTED)
    style = Markup((FOLDER / "static" / "style.css").read_text())
    text = await rendered("export.html", **_facts(view, actions, await _task(request, view)), style=style)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    named = {"Content-Disposition": f'attachment; filename="session-{sid}.html"'}
    return HTMLResponse(text, headers={**HEADERS, **named, "Content-Security-Policy": policy})


@ROUTER.get("/{sid}/asciicast")
async def recording(request: Request, sid: Sid) -> Response:
    """The asciicast of `/v1`, for a browser that is logged in."""
    return await show_asciicast(request, sid)


@ROUTER.get("/{sid}/live")
async def live(request: Request, sid: Sid, after: After = 0) -> Response:
    """Server-sent events: each action, once acknowledged, as an HTML fragment; `over` at the end."""
    view = await sessions_of(request).view(sid)
    if len(request.app.state.followed) >= _LIVES:
        return Response("too many pages show live updates; reload this one manually", 503, HEADERS)
    events = _events(request, view.record, after)
    return StreamingResponse(events, media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"})


async def _events(request: Request, record: SessionRecord, after: int) -> AsyncIterator[str]:
    sessions, state = sessions_of(request), request.app.state
    me, until = object(), clock.now() + _LIVE_S
    state.followed.add(me)
    try:
        yield "retry: 5000\n\n"
        last = None
        while clock.now() < until and not state.stopping:
            over = (await sessions.state(record.sid)) not in (SessionState.LIVE, SessionState.ENDING)
            new = await sessions.actions(record.sid, after=after, limit=_AT_ONCE)
            for one in new:
                shown = _cut(one, last if last is not None else record.created_at)
                last, after = one.started_at + one.duration_s, one.seq
                piece = await rendered("_action.html", action=shown, sid=record.sid)
                data = piece.replace("\n", "\ndata: ")
                yield f"id: {one.seq}\nevent: action\ndata: {data}\n\n"
            if over and not new:
                yield "event: over\ndata: \n\n"
                return
            if not new:
                yield ": \n\n"  # sending fails once the viewer has disconnected
                await asyncio.sleep(_LOOK_S)
    finally:
        state.followed.discard(me)


@ROUTER.post("/{sid}/close")
async def close(request: Request, sid: Sid) -> Response:
    """End a session; its patch is kept and graded."""
    if not await _may_change(request):
        return await page(request, "stale.html", 403)
    if await sessions_of(request).close(sid) is None:
        raise UnknownSession.of(sid)
    return RedirectResponse(f"/ui/sessions/{sid}", 303, HEADERS)


@ROUTER.post("/{sid}/grade")
async def grade(request: Request, sid: Sid) -> Response:
    """Grade the session again, if its verdict was a fault of ours or is missing."""
    if not await _may_change(request):
        return await page(request, "stale.html", 403)
    view = await sessions_of(request).view(sid)
    if view.record.state != SessionState.LIVE:
        await sessions_of(request).reward(sid)
    return RedirectResponse(f"/ui/sessions/{sid}", 303, HEADERS)


async def _may_change(request: Request) -> bool:
    return logins_of(request).may_change(request, (await form_of(request)).get("token", ""))


async def _task(request: Request, view: SessionView) -> TaskInstance | None:
    """The session's instance; None for a box, or if the instance was removed."""
    if not view.record.instance_id:
        return None
    with suppress(UnknownInstance):
        return await instances_of(request).by_id(view.record.instance_id)
    return None


def _facts(view: SessionView, actions: list[Shown], task: TaskInstance | None) -> dict[str, Any]:
    record = view.record
    last = max((one.started_at + one.duration_s for one in actions), default=record.created_at)
    return {
        "view": view,
        "record": record,
        "grade": view.graded,
        "patch": view.patch,
        "actions": actions,
        "stages": STAGES,
        "spent": _spent(view),
        "step": task.step if task else None,
        "tests": results_of(view.graded.verdict, task) if view.graded else [],
        "began": min((one.started_at - one.gap_s for one in actions), default=record.created_at),
        "ended": last,
    }


def _spent(view: SessionView) -> dict[str, float]:
    """Stage -> seconds of the session's wall time until now."""
    record, graded = view.record, view.graded.verdict.timings_s if view.graded else {}
    ended_at = record.ended_at or clock.now()
    return stages_of(
        SessionTimings(
            run=record.run,
            created_at=record.created_at,
            ended_at=ended_at,
            end_reason=record.end_reason,
            actions=record.actions,
            timings_s=record.timings_s,
            queue_s=graded.get("queue", 0.0),
            grade_s=graded.get("total", 0.0),
        )
    )


async def _shown(sessions: Sessions, record: SessionRecord, after: int, most: int) -> list[Shown]:
    shown: list[Shown] = []
    last = record.created_at
    if after and (former := await sessions.actions(record.sid, after=after - 1, limit=1)):
        last = former[0].started_at + former[0].duration_s
    while len(shown) < most:
        at = shown[-1].seq if shown else after
        some = await sessions.actions(record.sid, after=at, limit=min(_AT_ONCE, most - len(shown)))
        if not some or some[0].seq <= at:
            break
        for one in some:
            shown.append(_cut(one, last))
            last = one.started_at + one.duration_s
    return shown


def _cut(one: ActionRecord, last: float) -> Shown:
    return Shown(
        seq=one.seq,
        tool=one.tool,
        outcome=one.outcome,
        exit_code=one.exit_code,
        started_at=one.started_at,
        duration_s=one.duration_s,
        gap_s=max(0.0, one.started_at - last),
        content=_shortened(one.content),
        content_chars=len(one.content),
        observation=_shortened(one.observation),
        observation_chars=len(one.observation),
    )


def _shortened(text: str) -> str:
    head, left_out, tail = cut(text, _KEPT)
    return f"{head}\n… {left_out:,} characters left out …\n{tail}" if left_out else head


async def _siblings(sessions: Sessions, view: SessionView) -> list[SessionWithVerdict]:
    record = view.record
    if not record.kind.is_rollout:
        return []
    found = await sessions.list(SessionFilter(run=record.run, instance=record.instance_id), limit=32)
    return [seen for seen in found if seen.record.sid != record.sid]
