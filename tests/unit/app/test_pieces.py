"""A websocket's bytes reach its protocol in small pieces, one in each round of the event loop, all and in order."""

import asyncio
from typing import Any, cast

from sandbox_server.app.websocket_upgrades import _PIECE, PieceByPiece


class Socket:
    """A transport that notes whether it is read from, and whether it is closed."""

    def __init__(self) -> None:
        self.reads, self.closed = True, False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Speaking(asyncio.Protocol):
    """Notes what it gets; pauses at a piece that begins with `stop`."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.transport: Any = None

    def data_received(self, data: bytes) -> None:
        self.got.append(data)
        if data.startswith(b"stop"):
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.got.append(b"eof")


def _connected() -> tuple[Socket, Speaking, PieceByPiece]:
    socket, speaking = Socket(), Speaking()
    pieces = PieceByPiece(cast(asyncio.Transport, socket), speaking)
    speaking.transport = pieces
    return socket, speaking, pieces


async def test_a_flood_leaves_the_loop_its_turns() -> None:
    """256 KB of pings in one read held the event loop for 0.45 s, empty ones for seconds."""
    socket, speaking, pieces = _connected()
    flood = bytes(range(256)) * 1024
    pieces.feed(flood)
    pieces.end()
    rounds = 0
    while not socket.closed:
        assert len(speaking.got) <= rounds + 1 and not socket.reads, "more than one piece in a round"
        await asyncio.sleep(0)
        rounds += 1
    assert b"".join(speaking.got) == flood + b"eof" and max(map(len, speaking.got)) == _PIECE


async def test_its_protocol_may_pause() -> None:
    """Nothing is lost, and nothing is read while it does."""
    socket, speaking, pieces = _connected()
    pieces.feed(b"stop" + bytes(2 * _PIECE))
    pieces.feed(b"more")
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(speaking.got) == 1 and not socket.reads
    pieces.resume_reading()
    for _ in range(5):
        await asyncio.sleep(0)
    assert b"".join(speaking.got) == b"stop" + bytes(2 * _PIECE) + b"more" and socket.reads


async def test_a_small_message_comes_at_once() -> None:
    """Each would cost a round of the loop."""
    socket, speaking, pieces = _connected()
    pieces.feed(b"x")
    assert speaking.got == [b"x"] and socket.reads
