"""Clients that disconnect, stall or send nonsense, beside well-behaved ones."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from urllib.parse import urlsplit

import httpx

from bench.trainer import bash
from chaos.fault import Fault, FaultContext

_HANG_UPS = 60
_STALLED = 200
_STALL_S = 12.0
_MALFORMED = 1000
_AT_ONCE = 16
_PATHS = ("/start_instance", "/process_action", "/postprocess", "/compute_reward")


async def hang_up(context: FaultContext) -> str:
    """Connections closed at random moments of a start or an action."""
    instance_id = context.fleet.instances[0][1]
    dice = random.Random(4)
    sids = [one.sid for one in context.trainer.under_way("act")]
    cut = 0

    async def one(number: int) -> bool:
        start = number % 2 == 0 or not sids
        path = "/start_instance" if start else "/process_action"
        # the action changes nothing that the rollout checks
        body = (
            {"instance_hash": instance_id}
            if start
            else {"sid": sids[number % len(sids)], "content": bash(f"sleep 0.3 # {number}")}
        )
        reader, writer = await _send(context, path, json.dumps(body).encode())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(0.0, 0.6)):
                await reader.read(1)
                return False
        writer.transport.abort()
        return True

    for begin in range(0, _HANG_UPS, 6):
        cut += sum(await asyncio.gather(*(one(number) for number in range(begin, begin + 6))))
    context.effect(cut > _HANG_UPS / 4, f"only {cut} requests were running when their client disconnected")
    return f"{cut} of {_HANG_UPS} requests cut off"


async def stall(context: FaultContext) -> str:
    """Half a request each, and then nothing."""
    writers = []
    try:
        for number in range(_STALLED):
            _, writer = await _send(context, _PATHS[number % 4], b'{"sid": "1", "content": "', missing=5000)
            writers.append(writer)
        before = len(context.trainer.answers)
        await asyncio.sleep(_STALL_S)
        answered = len(context.trainer.answers) - before
        context.effect(answered, "nothing else was answered meanwhile")
    finally:
        for writer in writers:
            writer.transport.abort()
    return f"{_STALLED} requests left half sent for {_STALL_S:g} s, {answered} answers to others meanwhile"


async def malformed(context: FaultContext) -> str:
    """Nonsense of every kind; it must never get a 5xx, and never reach another client's session."""
    dice = random.Random(4)
    codes: Counter[int] = Counter()
    turns = asyncio.Semaphore(_AT_ONCE)
    async with httpx.AsyncClient(base_url=context.fleet.url, timeout=60) as http:

        async def one(number: int) -> None:
            async with turns:
                answer = await http.post(_PATHS[number % 4], content=_nonsense(dice, number))
                codes[answer.status_code] += 1

        await asyncio.gather(*(one(number) for number in range(_MALFORMED)))
    context.effect(codes.total() == _MALFORMED, f"only {codes.total()} were answered")
    refused = sum(n for code, n in codes.items() if 400 <= code < 500)
    context.effect(refused > _MALFORMED / 2, f"only {refused} were refused: {dict(codes)}")
    if broken := {code: n for code, n in codes.items() if code >= 500}:
        raise AssertionError(f"malformed requests were answered with {broken}")
    return f"answers: {', '.join(f'{n} x {code}' for code, n in sorted(codes.items()))}"


def _nonsense(dice: random.Random, number: int) -> bytes:
    """One body; every eighth is well-formed but names no existing session."""
    sid = dice.choice(["", "-1", "abc", "1e3", "0x10", "9" * 40, "\u0661"])
    kinds: tuple[bytes, ...] = (
        b"",
        b"{",
        dice.randbytes(200),
        b"[" * 5000,
        json.dumps(dice.choice([None, 7, "x", [], [{}], True])).encode(),
        json.dumps({"sid": {}, "content": [], "instance_hash": 1.5}).encode(),
        b'{"sid": "1", "content": "\xff\xfe"}',
        json.dumps({"sid": sid, "content": "x"}).encode(),
    )
    return kinds[number // 4 % len(kinds)]


async def _send(
    context: FaultContext, path: str, body: bytes, missing: int = 0
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request to the victim directly: the balancer would itself wait for the rest of a body."""
    url = urlsplit(context.victim.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    head = f"POST {path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body) + missing}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


FAULTS = (
    Fault(
        "clients_hang_up",
        "60 clients close their connection during a start or an action",
        "A session whose client hung up during its start is ended; an action runs to its end",
        hang_up,
    ),
    Fault("clients_stall", "200 clients send half a request and nothing more", "Nothing", stall),
    Fault(
        "malformed",
        "1,000 malformed requests",
        "Nothing; malformed requests get a 4xx, or an answer that there is no such session",
        malformed,
    ),
)
