"""Streams a session's actions as an asciicast."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from sandbox_server.insight import asciicast
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._refusals import refusals
from sandbox_server.protocols._streamed import Streamed
from sandbox_server.records import SessionRecord
from sandbox_server.sessions.base import Sessions

ROUTER = APIRouter(prefix="/v1", tags=["v1"])

_AT_ONCE = 5  # an observation may have SANDBOX_MAX_BODY_MB
_TYPE = "application/x-asciicast"


@ROUTER.get(
    "/sessions/{sid}/asciicast",
    response_class=Response,
    responses={**refusals(404), 200: {"content": {_TYPE: {"schema": {"type": "string"}}}}},
)
async def show_asciicast(request: Request, sid: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> Response:
    """The session's actions so far as an asciicast v3, which asciinema plays."""
    sessions = sessions_of(request)
    view = await sessions.view(sid)
    named = {"Content-Disposition": f'attachment; filename="session-{sid}.cast"'}
    return Streamed(_lines(sessions, view.record), _TYPE, named)


async def _lines(sessions: Sessions, record: SessionRecord) -> AsyncGenerator[bytes, None]:
    yield asciicast.head(record).encode()
    last, after = record.created_at, 0
    while (some := await sessions.actions(record.sid, after=after, limit=_AT_ONCE)) and some[-1].seq > after:
        for lines, at in asciicast.events(some, last):
            yield lines.encode()
            last = at
            await asyncio.sleep(0)  # one may have megabytes
        after = some[-1].seq
