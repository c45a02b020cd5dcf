"""What a relayed request's end means; `tests/protocols/test_relay.py` streams over real HTTP."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.types import Message

from sandbox_server.app.relay import HOP_HEADER, Relay, is_misdirected
from sandbox_server.protocols._by_host import TARGET
from sandbox_server.state.nodes import NodeRecord

BODY: list[Message] = [{"type": "http.request", "body": b"1", "more_body": True}]
END: list[Message] = [{"type": "http.request", "body": b"2", "more_body": False}]
GONE: list[Message] = [{"type": "http.disconnect"}]


async def _relayed(
    node: Callable[[httpx.Request], httpx.Response], messages: list[Message]
) -> tuple[Relay, list[Message]]:
    waiting, sent = list(messages), []

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    async def answer(request: httpx.Request) -> httpx.Response:
        await request.aread()
        return node(request)

    scope: dict[str, Any] = {"method": "PUT", "headers": [(b"transfer-encoding", b"chunked")]}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        relay = Relay(client, scope, receive, send)
        await relay.run(NodeRecord("far", "http://node", "far/1", hop_secret="secret"), "/", [])
    return relay, sent


def _breaks(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset")


async def test_an_answer_has_the_date_of_one_server() -> None:
    """Two Date headers make a response that some proxies refuse."""
    node_headers = {"Date": "then", "X-Own": "1", "Keep-Alive": "5"}
    relay, sent = await _relayed(
        lambda request: httpx.Response(200, headers=node_headers, stream=httpx.ByteStream(b"x")), BODY + END
    )
    names = {name for name, _ in sent[0]["headers"]}
    assert relay.done and b"x-own" in names and not names & {b"date", b"keep-alive"}


async def test_a_request_whose_body_was_read_is_not_sent_again() -> None:
    """Its rest alone would reach the node the second time: a file with its beginning missing."""
    relay, sent = await _relayed(_breaks, BODY + END)
    assert (relay.taken, relay.failed, relay.left, sent) == (True, True, False, [])


async def test_a_client_that_hangs_up_does_not_speak_against_the_node() -> None:
    """The node would get no starts for a while, for each client that cancels an upload."""
    relay, _ = await _relayed(_breaks, BODY + GONE)
    assert (relay.left, relay.failed) == (True, False)


@pytest.mark.parametrize(
    ("status", "header", "to_port", "misdirected"),
    [
        (421, None, False, True),  # a node of an older release
        (421, "secret", True, True),
        (421, "guess", True, False),  # a program in the box
        (421, None, True, False),
        (200, "secret", True, False),
    ],
)
def test_only_a_node_says_that_it_was_the_wrong_one(
    status: int, header: str | None, to_port: bool, misdirected: bool
) -> None:
    """A box's program could have each request to it sent twice."""
    answer = httpx.Response(status, headers={HOP_HEADER: header} if header else {})
    assert is_misdirected(answer, {TARGET: "port"} if to_port else {}, "secret") is misdirected
