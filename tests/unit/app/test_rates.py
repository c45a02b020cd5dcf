"""What a named key may ask and send in a minute."""

import time

import pytest
from starlette.types import Message, Receive, Scope, Send

from sandbox_server.app.rates import Rates
from sandbox_server.protocols._wire import KEY_OWNER


class _Clients:
    """Requests with a body of 2^20 bytes each, through `Rates`."""

    def __init__(self, *, requests: int = 0, sent_mb: float = 0.0) -> None:
        self._rates = Rates(self._route, requests_per_min=requests, sent_mb_per_min=sent_mb)
        self._answer: list[Message] = []

    async def ask(self, owner: str = "alice", kind: str = "http") -> int:
        """Seconds after which to ask again; 0: the request was served."""
        self._answer = []
        await self._rates({"type": kind, "path": "/", "headers": [], KEY_OWNER: owner}, self._receive, self._send)
        headers = dict(self._answer[0]["headers"])
        return int(headers.get(b"retry-after", 0))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": bytes(2**20), "more_body": False}

    async def _send(self, message: Message) -> None:
        self._answer.append(message)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


async def test_requests_are_counted_by_key(now: list[float]) -> None:
    """One tenant's loop would take the server from all others."""
    clients = _Clients(requests=3)
    assert [await clients.ask() for _ in range(4)] == [0, 0, 0, 20]
    assert await clients.ask("bob") == 0 and await clients.ask("") == 0
    now[0] += 20
    assert [await clients.ask() for _ in range(2)] == [0, 20]


async def test_a_long_silence_saves_up_one_minute_at_most(now: list[float]) -> None:
    """After a night without requests a key could send a night's worth at once."""
    clients = _Clients(requests=3)
    await clients.ask()
    now[0] += 3600
    assert [await clients.ask() for _ in range(4)] == [0, 0, 0, 20]


async def test_sent_bytes_delay_the_next_request(now: list[float]) -> None:
    """Large bodies would pass, since they are few."""
    clients = _Clients(sent_mb=2)
    assert [await clients.ask() for _ in range(3)] == [0, 0, 1]
    now[0] += 30
    assert [await clients.ask() for _ in range(2)] == [0, 1]


async def test_without_settings_nothing_is_refused(now: list[float]) -> None:
    """A service of one team would refuse its own trainers."""
    clients = _Clients()
    assert [await clients.ask() for _ in range(100)] == [0] * 100


async def test_a_websocket_is_not_refused_as_a_request() -> None:
    """Its client would get half an HTTP answer; its messages are requests of their own."""
    clients = _Clients(requests=1)
    assert await clients.ask() == 0
    assert await clients.ask() > 0
    assert await clients.ask(kind="websocket") == 0
