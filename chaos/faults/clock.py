"""The wall clock of one server process jumps; its monotonic clock and all other processes are unaffected."""

import asyncio
import signal
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from chaos.fault import Fault, FaultContext
from chaos.processes import ChaosFailed

_AHEAD_S = 3600
_BACK_S = -3600
_HOLD_S = 10.0


def library() -> Path:
    """Path of libfaketime. Raises ChaosFailed if it is not installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise ChaosFailed("libfaketime is not installed; `make chaos` as root installs it")
    return found[0]


async def stepped(context: FaultContext) -> str:
    """An hour ahead, an hour back, and right again, like a broken time server."""
    server = context.victim.server
    offset = context.fleet.folder / "clock"
    offset.write_text("+0\n")
    honest = dict(server.environment or {})
    server.environment = honest | {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    await context.off(lambda: server.end(signal.SIGTERM))
    await context.ready_again()
    seen = []
    try:
        for step in (_AHEAD_S, _BACK_S):
            offset.write_text(f"{step:+d}\n")
            await asyncio.sleep(_HOLD_S)
            seen.append(await _believes(context))
    finally:
        offset.write_text("+0\n")
        await asyncio.sleep(2)
        server.environment = honest
        await context.off(lambda: server.end(signal.SIGTERM))
        await context.ready_again()
    for wanted, found in zip((_AHEAD_S, _BACK_S), seen, strict=True):
        context.effect(abs(found - wanted) < 60, f"the process's clock was off by {found:.0f} s, not {wanted} s")
    return f"the process's clock was off by {' and '.join(f'{one:+.0f} s' for one in seen)}"


async def _believes(context: FaultContext) -> float:
    """Seconds that the process's clock is ahead of ours, from the Date header of its responses."""
    answer = await asyncio.to_thread(httpx.get, f"{context.victim.url}/healthz", timeout=5)
    return parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()


FAULTS = (
    Fault(
        "clock_step",
        "one server's wall clock an hour ahead for 10 s, then an hour back for 10 s",
        "Nothing: no lease and no limit depends on one process's wall clock",
        stepped,
    ),
)
