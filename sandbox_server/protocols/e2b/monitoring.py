"""Metrics and logs of sandboxes for E2B's SDK and CLI.

Metrics are measured on request (`boxes/measures.py`). Logs hold what the server did with a sandbox (`boxes/events.py`),
not the output of its commands.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import cast

import httpx
from fastapi import APIRouter, Request, Response

from sandbox_server import clock
from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.events import Event
from sandbox_server.boxes.measures import EVERY_S, Figures
from sandbox_server.boxes.monitoring import BoxMonitoring
from sandbox_server.errors import MalformedRequest, UnknownSession
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols._parts import boxes_of
from sandbox_server.protocols._wire import json_answer
from sandbox_server.protocols.e2b import wire

ROUTER = APIRouter(include_in_schema=False)  # documented by E2B
_MOST_SANDBOXES = 100
_MOST_LOGS = 1000
_LAST_SID = 10**19
_LAST_S, _LAST_MS = 10**11, 10**14
_LEVELS = ("debug", "info", "warn", "error")
_PASSED = (b"x-api-key", b"authorization", b"user-agent")


@ROUTER.get("/sandboxes/metrics")
async def all_metrics(request: Request) -> Response:
    """The newest figures of the sandboxes named in the query, on any node; unknown sandboxes are left out."""
    named = [sid for text in request.query_params.getlist("sandbox_ids") for sid in text.split(",")]
    sids = list(dict.fromkeys(sid for sid in named if whole(sid, _LAST_SID)))
    if len(sids) > _MOST_SANDBOXES:
        raise MalformedRequest(f"sandbox_ids: at most {_MOST_SANDBOXES}")
    headers = [(name, value) for name, value in request.headers.raw if name in _PASSED]  # bytes: may not be ASCII
    # one request per sandbox to this app, which checks the sandbox's owner and forwards to its node
    inner = httpx.ASGITransport(request.app)
    async with httpx.AsyncClient(transport=inner, base_url="http://server", headers=headers) as client:
        answers = await asyncio.gather(*(client.get(f"/sandboxes/{sid}/metrics") for sid in sids))
    found = {sid: answer.json() for sid, answer in zip(sids, answers, strict=True) if answer.is_success}
    return json_answer({"sandboxes": {sid: figures[-1] for sid, figures in found.items() if figures}})


@ROUTER.get("/sandboxes/{sid}/metrics")
async def metrics(request: Request, sid: str) -> Response:
    """Figures between the query's `start` and `end` (Unix seconds); if now lies between them, also one taken now."""
    start = _number(request, "start", 0, _LAST_S)
    end = _number(request, "end", _LAST_S, _LAST_S)
    view = await _here(request, sid)
    measures = _monitoring(request).measures
    now = clock.now()
    figures = await measures.now(view) if start <= now and end >= now - EVERY_S else measures.kept(sid)
    return json_answer([_metric(view, one) for one in figures if start <= int(one.at) <= end])


@ROUTER.get("/sandboxes/{sid}/logs")
async def logs(request: Request, sid: str) -> Response:
    """Events from `start` (milliseconds) on, oldest first, as lines of JSON and structured."""
    start, most = _number(request, "start", 0, _LAST_MS), _number(request, "limit", _MOST_LOGS, _MOST_LOGS)
    events = [one for one in await _events(request, sid) if _ms(one) >= start][:most]
    return json_answer(
        {
            "logs": [{"timestamp": _time(one), "line": json.dumps(_line(one))} for one in events],
            "logEntries": [_entry(one) for one in events],
        }
    )


@ROUTER.get("/v2/sandboxes/{sid}/logs")
async def logs_v2(request: Request, sid: str) -> Response:
    """Events from `cursor` (milliseconds) on in the query's direction, of its level or above, that contain its text."""
    query = request.query_params
    backward = query.get("direction", "forward") == "backward"
    cursor = _number(request, "cursor", _LAST_MS if backward else 0, _LAST_MS)
    most, level = _number(request, "limit", _MOST_LOGS, _MOST_LOGS), query.get("level", _LEVELS[0])
    if level not in _LEVELS:
        raise MalformedRequest(f"level: one of {', '.join(_LEVELS)}")
    found = [
        one
        for one in await _events(request, sid)
        if _LEVELS.index(one.level) >= _LEVELS.index(level)
        and query.get("search", "") in one.message
        and (_ms(one) <= cursor if backward else _ms(one) >= cursor)
    ]
    return json_answer({"logs": [_entry(one) for one in (reversed(found) if backward else found)][:most]})


def _monitoring(request: Request) -> BoxMonitoring:
    return cast(BoxMonitoring, request.app.state.box_monitoring)


async def _here(request: Request, sid: str) -> BoxView:
    """The live sandbox, paused or not, on this node. This does not count as use of the sandbox.

    Raises UnknownSession, OwnedElsewhere, NodeUnreachable.
    """
    return await boxes_of(request).looked_at(_sid(sid))


async def _events(request: Request, sid: str) -> Sequence[Event]:
    view = await _here(request, sid)
    begun = Event(view.record.created_at, "sandbox", "Sandbox started", {"template": view.box.template})
    return [begun, *_monitoring(request).events.of(sid)]


def _sid(text: str) -> str:
    if not whole(text, _LAST_SID):
        raise UnknownSession(f"Sandbox {text[:60]} not found")
    return text


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    number = whole(text, most)
    if number is None:
        raise MalformedRequest(f"{name}: a whole number from 0 to {most}")
    return number


def _metric(view: BoxView, figures: Figures) -> dict[str, object]:
    box = view.box
    return {
        "timestamp": wire.when(int(figures.at)).isoformat(),
        "timestampUnix": int(figures.at),
        "cpuCount": max(1, round(box.cpus)),
        "cpuUsedPct": figures.cpu_pct,
        "memUsed": figures.memory_bytes,
        "memTotal": box.memory_mb << 20,
        "memCache": figures.cache_bytes,
        "diskUsed": figures.disk_bytes,
        "diskTotal": box.disk_mb << 20,
    }


def _ms(event: Event) -> int:
    return int(event.at * 1000)


def _time(event: Event) -> str:
    return wire.when(event.at).isoformat()


def _line(event: Event) -> dict[str, object]:
    return {"level": event.level, "logger": event.logger, "message": event.message, **event.fields}


def _entry(event: Event) -> dict[str, object]:
    return {
        "timestamp": _time(event),
        "level": event.level,
        "message": event.message,
        "fields": {"logger": event.logger, **event.fields},
    }
