"""The wall clock of one server process jumps; its monotonic clock, and every other process, goes on."""

import asyncio
import signal
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from chaos.processes import ChaosFailed
from chaos.scene import Fault, Scene

_AHEAD_S = 3600
_BACK_S = -3600
_HOLD_S = 10.0


def library() -> Path:
    """libfaketime. Raises ChaosFailed where it is not installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise ChaosFailed("libfaketime is not installed; `make chaos` as root installs it")
    return found[0]


async def stepped(scene: Scene) -> str:
    """An hour ahead, an hour back, and right again, as a broken time server does it."""
    server = scene.victim.server
    offset = scene.fleet.folder / "clock"
    offset.write_text("+0\n")
    honest = dict(server.environment or {})
    server.environment = honest | {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_CACHE_DURATION": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    await scene.off(lambda: server.end(signal.SIGTERM))
    await scene.ready_again()
    seen = []
    try:
        for step in (_AHEAD_S, _BACK_S):
            offset.write_text(f"{step:+d}\n")
            await asyncio.sleep(_HOLD_S)
            seen.append(await _believes(scene))
    finally:
        offset.write_text("+0\n")
        await asyncio.sleep(2)
        server.environment = honest
        await scene.off(lambda: server.end(signal.SIGTERM))
        await scene.ready_again()
    for wanted, found in zip((_AHEAD_S, _BACK_S), seen, strict=True):
        scene.effect(abs(found - wanted) < 60, f"the process believed in {found:.0f} s, not {wanted} s")
    return f"the process believed in {' and '.join(f'{one:+.0f} s' for one in seen)}"


async def _believes(scene: Scene) -> float:
    """How far the process is ahead of us, by the Date that it puts on its answers."""
    answer = await asyncio.to_thread(httpx.get, f"{scene.victim.url}/healthz", timeout=5)
    return parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()


FAULTS = (
    Fault(
        "clock_step",
        "one server's wall clock an hour ahead for 10 s, then an hour back for 10 s",
        "Nothing: no lease and no limit goes by one process's wall clock",
        stepped,
    ),
)
