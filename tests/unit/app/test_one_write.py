"""Head and body of a response leave in one write, and nothing is held back, reordered or lost."""

import asyncio
from typing import Any, cast

import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.app.one_write import OneWriteProtocol, _Transport
from tests.waiting import eventually

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Recorded:
    """A transport that keeps its calls: a socket does not tell how many writes its bytes came by."""

    def __init__(self) -> None:
        self.calls: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def is_closing(self) -> bool:
        return self.closing


def _pair() -> tuple[Recorded, _Transport]:
    recorded = Recorded()
    return recorded, _Transport(cast(asyncio.Transport, recorded))


async def test_a_small_answer_is_one_write() -> None:
    recorded, transport = _pair()
    transport.write(HEAD)
    transport.write(b"{}")
    await asyncio.sleep(0)
    assert recorded.calls == [HEAD + b"{}"]


async def test_a_client_that_is_gone_gets_nothing() -> None:
    """Each request that it had sent ahead on its connection was an unforeseen error in the log, with a trace."""
    recorded, transport = _pair()
    transport.write(HEAD)
    recorded.closing = True
    transport.write(bytes(1 << 20))
    await asyncio.sleep(0)
    transport.close()
    assert recorded.calls == ["close"]


async def test_a_head_whose_body_comes_later_is_sent_at_once() -> None:
    """Server-sent events: the client must see the head before the first event."""
    recorded, transport = _pair()
    transport.write(HEAD)
    assert recorded.calls == []
    await asyncio.sleep(0)
    assert recorded.calls == [HEAD]
    transport.write(b"data: 1\n\n")
    assert recorded.calls == [HEAD, b"data: 1\n\n"]


async def test_a_large_body_is_not_copied() -> None:
    recorded, transport = _pair()
    body = bytes(1 << 20)
    transport.write(HEAD)
    transport.write(body)
    assert recorded.calls[0] == HEAD
    assert recorded.calls[1] is body


async def test_closing_sends_what_is_held_back() -> None:
    recorded, transport = _pair()
    transport.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert recorded.calls == [HEAD, "close"]
    assert not transport.is_closing(), "the rest is the transport's"


@given(st.lists(st.sampled_from([HEAD, b"", b"body", b"HTTP/1.1 100 Continue\r\n\r\n", b"x" * 70_000, None])))
def test_bytes_arrive_in_order(pieces: list[bytes | None]) -> None:
    async def run() -> None:
        recorded, transport = _pair()
        for piece in pieces:
            if piece is None:
                await asyncio.sleep(0)
            else:
                transport.write(piece)
        await asyncio.sleep(0)
        assert b"".join(cast(Any, recorded.calls)) == b"".join(piece for piece in pieces if piece)

    asyncio.run(run())


async def test_a_client_of_a_real_server_reads_both() -> None:
    """The protocol is one that uvicorn accepts, keep-alive included."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, port=0, http=OneWriteProtocol, lifespan="off", log_level="critical", ws="none")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    await eventually(lambda: asyncio.sleep(0, server.started))
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(2) == b"ok"
    writer.close()
    await writer.wait_closed()
    server.should_exit = True
    await running
