"""Errors as answers: of routes, and of what nobody foresaw."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from sandbox_server.app.failures import UnhandledErrors, service_error
from sandbox_server.errors import OverQuota, SandboxLost
from sandbox_server.lifecycle import SessionState


@pytest.mark.parametrize("begun", [False, True])
async def test_an_answer_that_has_begun_gets_no_second_head(begun: bool) -> None:
    """The server would raise about the second head, and the first error's id would be lost among its lines."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    async def send(message: Message) -> None:
        sent.append(message)

    await UnhandledErrors(app)({"type": "http", "method": "GET", "path": "/", "headers": []}, AsyncMock(), send)
    assert [message.get("status") for message in sent] == ([200] if begun else [500, None])


async def _answer(error: Any, box: object = None) -> tuple[int, dict[str, Any], Any]:
    app = SimpleNamespace(state=SimpleNamespace(boxes=SimpleNamespace(find=AsyncMock(return_value=box))))
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "path_params": {"sid": "7"}, "app": app}
    answer = await service_error(Request(scope), error)
    return answer.status_code, json.loads(bytes(answer.body)), answer.headers


async def test_a_quota_says_when_to_ask_again() -> None:
    """Clients would ask at once, and again."""
    status, body, headers = await _answer(OverQuota("too many", retry_after_s=7))
    assert (status, body["code"], headers["retry-after"]) == (429, "over_quota", "7")


@pytest.mark.parametrize(
    ("state", "paused", "code"),
    [
        (SessionState.ENDED, False, "unknown_session"),
        (SessionState.LIVE, True, "sandbox_paused"),
        (SessionState.LIVE, False, "sandbox_lost"),
    ],
)
async def test_a_box_that_its_client_ended_or_paused_is_not_lost(state: SessionState, paused: bool, code: str) -> None:
    """Each pause under a request would be counted as a fault of the service."""
    box = SimpleNamespace(record=SimpleNamespace(state=state, end_reason="closed"), paused=paused)
    _, body, _ = await _answer(SandboxLost("gone"), box)
    assert body["code"] == code
