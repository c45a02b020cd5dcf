"""Malformed requests to every route of a running server cause no 500, no memory growth, no blocked loop.

Runs for FUZZ_S seconds, default 12; the long form takes ten minutes: `FUZZ_S=600 pytest tests/live/test_fuzz.py`.
"""

import contextlib
import functools
import gzip
import json
import os
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .serving import Server

FUZZ_S = float(os.environ.get("FUZZ_S", "12"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns() % 2**32
WORKERS = 6
STALL_S = 0.25
"""Busy time of the loop's thread: that of a machine with other work to do counts as well as that of one without."""
GROWTH_KB = 96 << 10
"""Allowed growth after one round of everything; a bomb of 200 MB, or a leak, is far larger."""
ANSWER_S = 60.0
WAIT_S = 3.0

E2B = ("/sandboxes", "/v2/sandboxes", "/sandboxes/7", "/sandboxes/7/timeout", "/files", "/health", "/templates/x")
AGENTS = ("/mcp", "/mcp/sessions/7", "/openenv/reset", "/openenv/step")
ENVD = (
    "/process.Process/Start",
    "/process.Process/List",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/Stat",
)
NAMED = {
    "sid": "7",
    "receipt_id": "r",
    "instance_id": "samples__ledger-12",
    "command_id": "c",
    "node": "nobody",
    "run": "r",
    "snapshot": "s",
}
JUNK = (
    b"\xff\xfe",
    b"\x00",
    b"\r\n",
    b"9" * 5000,
    b"-1",
    b"1e999999",
    b"NaN",
    b'"\\ud800"',
    b"{}",
    b"[]",
    b"null",
    b"\\u0000",
)


@functools.cache
def bomb() -> bytes:
    """200 MB of brackets, packed."""
    return gzip.compress(b"[" * (200 << 20), 9)


def routes(server: Server) -> list[tuple[str, str]]:
    """Method and path of every route; the paths name nothing that exists."""
    paths = httpx.get(f"{server.url}/openapi.json", timeout=60).json()["paths"]
    own = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    named = {**NAMED, "sha256": "0" * 64}
    own = [(method, re.sub(r"\{(\w+)\}", lambda match: named[match[1]], path)) for method, path in own]
    others = [(method, path) for path in (*E2B, *ENVD, *AGENTS) for method in ("GET", "POST", "PUT", "DELETE")]
    # a drain would end what others use
    return [(method, path) for method, path in own + others if not path.endswith("/drain")]


def request(method: str, path: str, body: bytes = b"", *headers: bytes, length: bool = True) -> bytes:
    head = [f"{method} {path} HTTP/1.1".encode("latin-1"), b"Host: x", b"Connection: close", *headers]
    if length:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def bodies(dice: random.Random) -> bytes:
    """An invalid body."""
    fields = [
        b'"sid"',
        b'"content"',
        b'"instance_hash"',
        b'"commands"',
        b'"items"',
        b'"image"',
        b'"ttl_s"',
        b'"timeout"',
    ]
    choice = dice.randrange(9)
    if choice == 0:
        return dice.choice((b"[", b'{"a":', b'{"items":[', b'{"metadata":{"a":')) * 100_000
    if choice == 1:
        return b"{" + b",".join(b"%s: %s" % (dice.choice(fields), dice.choice(JUNK)) for _ in range(2000)) + b"}"
    if choice == 2:
        return b"{%s: %s, %s: %s}" % (fields[0], dice.choice(JUNK), fields[0], dice.choice(JUNK))
    if choice == 3:
        return dice.randbytes(dice.randrange(4000))
    if choice == 4:
        return b'{"sid": "7", "content": "' + b"\\ud83d" * dice.randrange(1, 100_000) + b'"}'
    if choice == 5:
        return json.dumps({"items": [None] * 600, "instances": ["\0"] * 4000, "turns": [{}] * 9000}).encode()
    whole = {
        "sid": "7",
        "content": "x",
        "instance_hash": 1,
        "command": "true",
        "ttl_s": 60,
        "image": "i",
        "items": [{}],
    }
    text = bytearray(json.dumps({name: value for name, value in whole.items() if dice.random() < 0.5}).encode())
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(text) + 1)
        text[at:at] = dice.choice(JUNK)
    return bytes(text)


def much(dice: random.Random, method: str, path: str, body: bytes) -> bytes:
    """An excessive amount of something."""
    return dice.choice(
        (
            lambda: request(method, path, bomb(), b"Content-Encoding: gzip"),
            lambda: request(method, path, body, *(b"X-%d: v" % number for number in range(10_000))),
            lambda: request(method, path, body, b"X-Long: " + b"v" * (1 << dice.randrange(8, 21))),
        )
    )()


def smuggled(dice: random.Random, method: str, path: str, body: bytes) -> bytes:
    """Two lengths, a length and chunks, a chunk that lies, a length that is none, an end in the middle."""
    second = b"0\r\n\r\nGET /v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n"
    more = dice.choice((b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Transfer-Encoding: xchunked, identity"))
    size = dice.choice((b"ffffffffffffffffff", b"-1", b"5;" + b"e" * 9000, b"0x5", b" 5"))
    length = dice.choice((b"-1", b"+5", b"5_0", b"9" * 5000, b"0x5", b"\xb2"))
    chunks = size + b"\r\nabcde\r\n0\r\n\r\n"
    half = request(method, path, body)
    return dice.choice(
        (
            request(method, path, second, more),
            request(method, path, chunks, b"Transfer-Encoding: chunked", length=False),
            request(method, path, b"abcde", b"Content-Length: " + length, length=False),
            half[: dice.randrange(len(half))],
        )
    )


def odd(dice: random.Random, method: str, path: str, body: bytes) -> bytes:
    """An unexpected path, query, header or protocol."""
    before = dice.choice(
        ("//", "/%00", "/../../etc/passwd", "/%2e%2e/%2e%2e", "/v1/sessions/" + "9" * 8000, "*", "http://x/")
    )
    query = dice.choice(
        ("?limit=" + "9" * 5000, "?run=%00", "?state=%ff", "?path=%ff%00&user=%00", "?" + "a=b&" * 9000)
    )
    upgrade = dice.choice((b"websocket", b"h2c", b"TLS/1.0"))
    name = dice.choice((b"Idempotency-Key", b"Sandbox-Run", b"Sandbox-Forwarded", b"E2b-Sandbox-Id", b"X-Access-Token"))
    value = dice.choice((*JUNK[3:], b"\xff" * 300))
    return dice.choice(
        (
            request(method, before + path.removeprefix("/"), body),
            request(method, path + query, body),
            request(method, path, body, b"Upgrade: " + upgrade, b"Connection: Upgrade", b"Sec-WebSocket-Key: x"),
            request(method, path, body, name + b": " + value),
            dice.choice(
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01" + dice.randbytes(200), b"GET / HTTP/9.9\r\n\r\n")
            ),
        )
    )


def plain(dice: random.Random, method: str, path: str, body: bytes) -> bytes:
    return request(method, path, body)


def strange(dice: random.Random, method: str, path: str) -> bytes:
    """The bytes of a connection, with a valid or an invalid request."""
    return dice.choice((much, smuggled, odd, plain))(dice, method, path, bodies(dice))


def answered(server: Server, data: bytes) -> str:
    """The answer's status, "" where the server hung up, or still waits for the rest of what was no whole request."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
    with connection, contextlib.suppress(OSError), connection.makefile("rb") as answer:
        connection.sendall(data)
        head = answer.readline(200)
        return head[9:12].decode("latin-1") if head.startswith(b"HTTP/1.1 ") else ""
    return ""


@contextlib.contextmanager
def held_open(server: Server, count: int) -> Iterator[None]:
    """Open `count` connections with unfinished requests: half a head, half a body, an occasional byte."""
    host, port = server.url.removeprefix("http://").split(":")
    halves = (
        b"POST /start_instance HTT",
        b"POST /process_action HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
        b"",
    )
    with contextlib.ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=ANSWER_S))
            connection.sendall(halves[number % len(halves)])
        yield


def resident_kb(server: Server) -> int:
    assert server._process is not None
    status = Path(f"/proc/{server._process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def one_round(server: Server, send: Callable[[tuple[int, str, str]], str], found: Counter[str], every: int) -> None:
    """Request each route `every` times, by several concurrent clients."""
    wanted = [(seed, *route) for seed in range(every) for route in routes(server)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found.update(pool.map(send, wanted))


def test_nothing_that_is_sent_breaks_it(live: Server) -> None:
    """A client without a key could stop the service for all others."""
    dice = random.Random(SEED)
    said: list[str] = []

    def send(what: tuple[int, str, str]) -> str:
        _, method, path = what
        data = strange(random.Random(dice.random()), method, path)
        status = answered(live, data)
        if status in ("500", "504", "507"):
            said.append(f"{status}: {data[:300]!r}")
        return status

    found: Counter[str] = Counter()
    since = live.log.stat().st_size
    one_round(live, send, found, 1)
    before, until = resident_kb(live), time.monotonic() + FUZZ_S
    with held_open(live, 60):
        while time.monotonic() < until:
            one_round(live, send, found, 1)
            assert httpx.get(f"{live.url}/healthz", timeout=ANSWER_S).is_success
    assert not said, (SEED, said[:5])
    entries = live.entries(since)
    unforeseen = [entry for entry in entries if entry["event"] == "unforeseen error" or "Traceback" in str(entry)]
    assert not unforeseen, (SEED, unforeseen[:3])
    stood = [entry for entry in entries if entry["event"] == "event loop stood still" and entry["busy_s"] > STALL_S]
    assert not stood, (SEED, stood[:3])
    assert sum(found.values()) > 100 and found["422"] and found["404"] and found["400"], found
    assert resident_kb(live) - before < GROWTH_KB, (SEED, before, resident_kb(live))


def announced(server: Server, size: int, wait_s: float) -> socket.socket:
    """A connection on which a body of `size` bytes is announced; the server sends 100 once it has room for it."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=wait_s)
    head = request("POST", "/process_action", b"", b"Expect: 100-continue", b"Content-Length: %d" % size, length=False)
    connection.sendall(head)
    return connection


def test_large_bodies_share_a_bound(live: Server) -> None:
    """64 bodies of 31 MB at once took 2.1 GB of memory. Those that are too many wait; small ones do not."""
    with contextlib.ExitStack() as stack:
        large = [stack.enter_context(announced(live, 31 << 20, ANSWER_S)) for _ in range(6)]
        for connection in large:  # of the 256 MB, 192 are for large ones
            assert connection.recv(12) == b"HTTP/1.1 100"
        waiting = stack.enter_context(announced(live, 31 << 20, 1))
        with pytest.raises(TimeoutError):
            waiting.recv(12)
        small = stack.enter_context(announced(live, 1 << 20, ANSWER_S))
        assert small.recv(12) == b"HTTP/1.1 100"
        assert live.post("/process_action", []).status_code == 422
        large[0].close()
        waiting.settimeout(ANSWER_S)
        assert waiting.recv(12) == b"HTTP/1.1 100", "the one that hung up has given back what it had"
