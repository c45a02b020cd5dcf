"""The E2B SDK against a server with its protocol. Runs in its own environment."""

import asyncio
import io
import os
import time
from typing import Any

from e2b import AsyncSandbox

_KEY = "e2b_" + "0" * 40
boxes: list[AsyncSandbox] = []


async def open_boxes(url: str, n: int) -> dict[str, Any]:
    """Create `n` sandboxes, four at a time; ms of each create."""
    turns = asyncio.Semaphore(4)

    async def one() -> float:
        async with turns:
            began = time.perf_counter()
            boxes.append(await AsyncSandbox.create(api_key=_KEY, api_url=url, sandbox_url=url, timeout=900))
            return (time.perf_counter() - began) * 1000

    return {"ms": await asyncio.gather(*(one() for _ in range(n)))}


async def run(command: str, times: int) -> dict[str, Any]:
    """Run `commands.run` repeatedly in the first sandbox; ms of each."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await boxes[0].commands.run(command)
        took.append((time.perf_counter() - began) * 1000)
    return {"ms": took}


async def poll(command: str, period_s: float, seconds: float) -> dict[str, Any]:
    """Run one command per `period_s` in every sandbox, at staggered times; count, ms of each, our own CPU."""
    took: list[float] = []
    cpu = os.times()
    ends = time.monotonic() + seconds

    async def one(box: AsyncSandbox, number: int) -> None:
        due = time.monotonic() + period_s * number / len(boxes)
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.perf_counter()
            await box.commands.run(command)
            took.append((time.perf_counter() - began) * 1000)
            due += period_s

    await asyncio.gather(*(one(box, number) for number, box in enumerate(boxes)))
    await asyncio.sleep(max(0.0, ends - time.monotonic()))
    now = os.times()
    return {"ms": took, "cpu_s": now.user + now.system - cpu.user - cpu.system}


async def upload(megabytes: int) -> dict[str, Any]:
    """Seconds to upload a file of this size the way slime does."""
    data = io.BytesIO(os.urandom(1 << 20) * megabytes)
    began = time.perf_counter()
    await boxes[0].files.write("/tmp/large", data, user="root", gzip=False, use_octet_stream=True, request_timeout=600)
    return {"s": time.perf_counter() - began}


async def close() -> dict[str, Any]:
    """Kill all sandboxes."""
    await asyncio.gather(*(box.kill() for box in boxes))
    boxes.clear()
    return {}


async def clean_up() -> None:
    await close()


OPERATIONS = {"open": open_boxes, "run": run, "poll": poll, "upload": upload, "close": close}
