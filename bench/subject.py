"""What every subject gets: how much to measure, where to report figures, and our server."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.machine import NOISY_PCT, conditions
from bench.results import Figure, Run
from bench.samples import every_row, rows, write_rows
from bench.trainer import Trainer, trainer
from sandbox_server.cli.local_server import LocalServer, LocalServerFailed, local_server

SUBJECT_S = 420.0
"""Bound of one subject; on a quiet machine the longest takes half of it."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One run, as the subjects see it."""

    run: Run
    is_prepared: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once `prepare` has prepared the images."""
    servers: dict[str, "Served"] = field(default_factory=dict)
    """Settings -> the server that a quick run's subjects share."""
    until_end: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Closed after the last subject."""

    @property
    def quick(self) -> bool:
        """Fewer repetitions, smaller shapes."""
        return self.run.mode == "quick"

    def of(self, whole: int, quick: int) -> int:
        """Repetitions: `whole`, or `quick` in a quick run."""
        return quick if self.quick else whole

    def add(self, *figures: Figure) -> None:
        """Store figures and print them."""
        for figure in figures:
            self.run.figures.append(figure)
            self.say(f"  {line(figure)}")

    def miss(self, what: str, why: BaseException | str) -> None:
        """Record a subject or peer without figures, for the report."""
        reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        self.run.missing[what] = " ".join(reason.split())[:500]
        self.say(f"  MISSING {what}: {self.run.missing[what]}")

    async def subject(self, name: str, measure: Callable[["Bench"], Awaitable[None]]) -> None:
        """Observe the machine, then measure; a failure, or `SUBJECT_S`, is recorded and the other subjects continue."""
        seen = await conditions()
        self.say(f"{name}: load {seen.load:.2f}, {seen.busy_pct:.0f} % of the CPUs in use by others")
        if seen.busy_pct > NOISY_PCT:
            self.say("  WARNING: the machine is busy, do not quote these figures")
        began = time.monotonic()
        try:
            async with asyncio.timeout(SUBJECT_S):
                await measure(self)
        except TimeoutError as error:
            self.miss(name, str(error) or f"a wait in it, or all of it ({SUBJECT_S:g} s), took too long")
        except Exception as error:  # noqa: BLE001 - one subject's failure must not cost the others' figures
            self.miss(name, error)
        took_s = time.monotonic() - began
        self.run.conditions[name] = replace(seen, took_s=took_s)
        self.say(f"  took {took_s:.0f} s")

    async def close(self) -> None:
        """End the servers that subjects share."""
        try:
            await self.until_end.aclose()
        except LocalServerFailed as error:
            self.miss("the end of a server", error)

    def say(self, text: str) -> None:
        """Print progress on stderr."""
        print(text, file=sys.stderr, flush=True)


def line(figure: Figure) -> str:
    """One figure on one line."""
    ours, peer = (f"{side.value:.4g}" if side else "-" for side in (figure.ours, figure.peer))
    ratio = f"{figure.ratio:.3g}" if figure.ratio is not None else "-"
    n = figure.ours.n if figure.ours else 0
    return f"{figure.name:<32}{ours:>10}{peer:>10} {figure.unit:<5}{ratio:>8}  n={n:<6}{figure.peer_name or ''}"


WITHOUT_POOL = {"SANDBOX_POOL_SIZE": "0"}


@dataclass(frozen=True, slots=True)
class Served:
    """One of our servers, with a client."""

    process: LocalServer
    client: Trainer

    @property
    def data_dir(self) -> Path:
        """The folder of its embedded Redis and SQL database."""
        return self.process.log.parent


@asynccontextmanager
async def served(bench: Bench, rows: Sequence[dict[str, Any]], **settings: str) -> AsyncIterator[Served]:
    """Serve these rows during the block, with the default settings unless others are given.

    In a quick run all subjects with the same settings share one server, which has all rows and keeps running.
    """
    if not bench.quick:
        async with own_server(rows, settings) as server:
            yield server
        return
    shared = repr(settings)
    if shared not in bench.servers:
        bench.servers[shared] = await bench.until_end.enter_async_context(own_server(every_row(), settings))
    yield bench.servers[shared]


@asynccontextmanager
async def own_server(rows: Sequence[dict[str, Any]], settings: Mapping[str, str]) -> AsyncIterator[Served]:
    """Serve these rows during the block by a server that no other subject uses."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        rows_file = write_rows(rows, Path(folder))
        with local_server(rows_file, settings) as process:
            async with trainer(process.url) as client:
                yield Served(process, client)


async def prepare(bench: Bench) -> None:
    """Have the images prepared by a server without a pool, because the first start of an image takes longer."""
    if bench.is_prepared.is_set():
        return
    async with served(bench, rows(), **WITHOUT_POOL) as server:
        for row in rows():
            await server.client.end(await server.client.start(row["instance_id"]))
    bench.is_prepared.set()
