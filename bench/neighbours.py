"""Eight honest sessions, alone and beside eight that attack their host in every way that a sandbox allows."""

import asyncio
import contextlib
import shlex
from functools import partial

import aiohttp

from bench.actions import paced
from bench.results import Figure, Side
from bench.samples import sample
from bench.subject import Bench, Served, served
from bench.trainer import Refused, bash

_HONEST = 8
_HOSTILE = (
    ":(){ :|:& };: ",  # forks
    "python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 24))'",  # memory
    "while :; do dd if=/dev/zero of=/tmp/full bs=1M count=600 status=none; rm -f /tmp/full; done",  # the disk
    "yes 0123456789012345678901234567890123456789",  # output
    "mkdir -p /tmp/n && cd /tmp/n && while :; do for i in {1..5000}; do : > f$i; done; rm -f f*; done",  # files
    'python3 -c \'import os\nf = os.open("/tmp/s", 577)\nwhile True: os.write(f, b"x"); os.lseek(f, 0, 0)\'',  # writes
    "while :; do /bin/true; done",  # programs
    "while :; do (while :; do :; done) & sleep 0.05; done",  # CPU
)
_LASTS_S = 5
_SETTLE_S = 4.0
_LOOK = bash("git log --oneline | head -3; ls; grep -rn def ledger | head -20")


async def measure(bench: Bench) -> None:
    """One action per second in each honest session: a look into the repository, some milliseconds of work."""
    one = sample()
    async with served(bench, [one.row], SANDBOX_MEMORY_MB="1024", SANDBOX_PIDS="256") as server:
        sids = [await server.client.start(one.instance_id) for _ in range(_HONEST + len(_HOSTILE))]
        honest = [partial(server.client.act, sid, _LOOK) for sid in sids[:_HONEST]]
        await asyncio.gather(*(act() for act in honest))
        alone: list[float] = []
        beside: list[float] = []
        errors = 0
        for _ in range(bench.of(2, 1)):
            took, _, failed = await paced(honest, bench.of(25, 10))
            alone += took
            errors += failed
            hostile = [
                asyncio.create_task(_attack(server, sid, command))
                for sid, command in zip(sids[_HONEST:], _HOSTILE, strict=True)
            ]
            try:
                await asyncio.sleep(_SETTLE_S)
                took, _, failed = await paced(honest, bench.of(25, 10))
            finally:
                for attacker in hostile:
                    attacker.cancel()
                await asyncio.gather(*hostile, return_exceptions=True)
            beside += took
            errors += failed
        with contextlib.suppress(Refused):
            await server.client.end(*sids)
    name = "the same sessions alone"
    note = f"{_HONEST} sessions, an action a second each, beside {len(_HOSTILE)} hostile ones"
    bench.add(
        Figure("neighbours_p99_ms", "ms", Side.p99(beside), Side.p99(alone), name, note),
        Figure("neighbours_p50_ms", "ms", Side.median(beside), Side.median(alone), name, note),
        Figure("neighbours_errors", "", Side(errors, len(beside) + len(alone)), note=note),
    )


async def _attack(server: Served, sid: str, command: str) -> None:
    """Repeat the command; the service's answer does not matter."""
    content = bash(f"timeout -s KILL {_LASTS_S} bash -c {shlex.quote(command)}")
    while True:
        with contextlib.suppress(Refused, aiohttp.ClientError):
            await server.client.act(sid, content)
