"""People who look at the pages of a server, in a process of their own: what they read must not delay the trainer."""

import asyncio
import itertools
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NoReturn

from bench.seeing_rows import FIRST, LAST_RUN
from bench.trainer import Clock, Trainer, trainer

OVERVIEWS = ("/ui", "/ui?window_s=21600", f"/ui?run={LAST_RUN}", "/ui?window_s=600")
"""One viewer each."""
_REFRESH_S = 10.0
"""As the overview's page does by itself."""
_CLICK_S = 2.0
_BOUND_S = 60.0


@asynccontextmanager
async def viewers(url: str, rows: int, took: dict[str, list[float]]) -> AsyncIterator[None]:
    """Let them look during the block; adds the ms of each kind of page to `took`.

    Raises RuntimeError for a page that was refused.
    """
    command = (sys.executable, "-m", "bench.viewers", url, str(rows))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None  # a pipe was requested
        async with asyncio.timeout(_BOUND_S):
            await process.stdout.readline()  # its imports are done
        yield
        async with asyncio.timeout(_BOUND_S):
            await _ended(process, took)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ended(process: Process, took: dict[str, list[float]]) -> None:
    said, _ = await process.communicate(b"")  # the end of its input tells it
    if process.returncode:
        raise RuntimeError(f"the viewers ended with exit code {process.returncode}")
    for kind, spent in json.loads(said).items():
        took.setdefault(kind, []).extend(spent)


async def _view(url: str, rows: int) -> None:
    """Until stdin ends."""
    took: dict[str, list[float]] = {}
    print(flush=True)
    async with trainer(url) as client:
        looking = [asyncio.create_task(_look(client, path, took.setdefault("overview", []))) for path in OVERVIEWS]
        looking.append(asyncio.create_task(_click(client, _clicks(rows), took)))
        told = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        done, _ = await asyncio.wait([told, *looking], return_when=asyncio.FIRST_COMPLETED)
        for viewer in looking:
            viewer.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        for one in done:
            one.result()
    print(json.dumps(took))


def _clicks(rows: int) -> Iterator[tuple[str, str]]:
    """(kind, path) in the order of somebody who looks for something."""
    last = FIRST + rows - 1
    return itertools.cycle(
        [
            ("list", "/ui/sessions?verdict=infra"),
            ("session", f"/ui/sessions/{last - last % 100}"),
            ("list", f"/ui/groups?run={LAST_RUN}"),
            ("list", "/ui/runs"),
            ("session", f"/ui/sessions/{last - 1}"),
            ("list", f"/ui/sessions?run={LAST_RUN}"),
            ("list", "/ui/pass-rates"),
            ("list", "/ui/groups"),
        ]
    )


async def _look(client: Trainer, path: str, took: list[float]) -> NoReturn:
    while True:
        took.append(await _page(client, path))
        await asyncio.sleep(_REFRESH_S)


async def _click(client: Trainer, clicks: Iterator[tuple[str, str]], took: dict[str, list[float]]) -> NoReturn:
    while True:
        kind, path = next(clicks)
        took.setdefault(kind, []).append(await _page(client, path))
        await asyncio.sleep(_CLICK_S)


async def _page(client: Trainer, path: str) -> float:
    """Its ms."""
    with Clock() as clock:
        text = await client.text(path)
    if "<main" not in text:
        raise RuntimeError(f"{path}: {text[:500]}")
    return clock.ms


if __name__ == "__main__":
    asyncio.run(_view(sys.argv[1], int(sys.argv[2])))
