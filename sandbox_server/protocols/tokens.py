"""Our own endpoint for session tokens, with which an agent uses one session by MCP without an API key."""

from typing import cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from sandbox_server.catalogue.session_tokens import SessionTokens
from sandbox_server.errors import IsBox, SessionOver
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._refusals import Sid, refusals
from sandbox_server.protocols._wire import json_answer
from sandbox_server.records import SessionKind


class SessionToken(BaseModel):
    """A token that opens one session's tools."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    token: str
    """Sent like an API key; accepted on `path` alone. The server stores only its hash, so it is never shown again."""
    path: str
    """`/mcp/sessions/{sid}`."""


ROUTER = APIRouter(prefix="/v1", tags=["v1"])


@ROUTER.post(
    "/sessions/{sid}/tokens",
    response_model=SessionToken,
    status_code=201,
    responses=refusals(404, 409),
)
async def issue_token(request: Request, sid: Sid) -> Response:
    """Make a token for an agent; the session's former token is no longer valid. 409 once the session has ended."""
    record = (await sessions_of(request).view(sid)).record
    if record.kind is SessionKind.BOX:
        raise IsBox(f"session {sid} is a box: it has no tools")
    if record.state != SessionState.LIVE:
        raise SessionOver("The session has ended; a token would open nothing.")
    token = await cast(SessionTokens, request.app.state.session_tokens).issue(sid)
    return json_answer({"token": token, "path": f"/mcp/sessions/{sid}"}, 201)
