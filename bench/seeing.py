"""Latency of the pages with many sessions: fill a catalogue, serve it, send requests.

    python -m bench.seeing --sessions 100000 --database sqlite:////tmp/seeing.sqlite3
    python -m bench.seeing --sessions 1000000 --database postgresql://user@host/empty_database

The server is the application over a real catalogue; sessions are only in SQL and the single node is fictitious.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx

from bench.seeing_rows import FIRST, LAST_RUN, LONG, fill
from sandbox_server.app import Parts, create_app
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import SessionFilter, SessionWithVerdict
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import UnknownSession
from sandbox_server.insight.overview import Insight
from sandbox_server.records import ActionRecord
from sandbox_server.sessions.base import Sessions, SessionView
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord

PATHS = (
    "/ui",
    "/ui?window_s=86400",
    f"/ui?run={LAST_RUN}",
    "/ui/sessions",
    "/ui/sessions?verdict=infra",
    "/ui/sessions?verdict=tampered",
    f"/ui/sessions?verdict=tampered&run={LAST_RUN}",
    "/ui/sessions?state=lost",
    f"/ui/sessions?run={LAST_RUN}&instance=bench__task-5",
    "/ui/runs",
    "/ui/groups",
    "/ui/groups?kind=all_0",
    f"/ui/groups?kind=all_0&run={LAST_RUN}",
    "/ui/pass-rates",
    "/ui/instances/bench__task-5",
    # words that all actions have, one in 20, in 2,000, in 200,000, in none together; a beginning
    "/ui/actions?q=observation",
    "/ui/actions?q=tool_7",
    "/ui/actions?q=file_77",
    "/ui/actions?q=symbol_7777",
    "/ui/actions?q=symbol_7777+symbol_7778",
    "/ui/actions?q=tool_7+file_77*",
    f"/ui/actions?q=observation&run={LAST_RUN}",
    f"/ui/actions?q=tool_7&run={LAST_RUN}",
    f"/ui/actions?q=file_77&run={LAST_RUN}",
    f"/ui/actions?q=symbol_7777&run={LAST_RUN}",
)
"""The pages that are measured, besides one session's."""

_TICK_S = 0.001


class Kept:
    """The sessions of a catalogue that nobody runs."""

    def __init__(self, history: History, listing: Listing) -> None:
        self._history = history
        self._listing = listing

    async def view(self, sid: str) -> SessionView:
        record = await self._history.session(sid)
        if record is None:
            raise UnknownSession(f"no session {sid}")
        return SessionView(record, await self._history.graded(sid), await self._history.patch(sid), {}, {})

    async def actions(self, sid: str, *, after: int = 0, limit: int | None = None) -> "list[ActionRecord]":
        return await self._history.actions(sid, after=after, limit=limit)

    async def nodes(self) -> "list[NodeRecord]":
        return [NodeRecord("n1", "http://n1", "b", slots=512, used=100)]

    async def list(self, wanted: SessionFilter, *, limit: int = 100) -> "list[SessionWithVerdict]":
        return await self._listing.sessions(wanted, limit=limit)


@contextlib.asynccontextmanager
async def _parts(database: Database) -> AsyncIterator[Parts]:
    history, listing = History(database), Listing(database)
    kept = Kept(history, listing)
    insight = Insight(Counts(database), listing, ActionSearch(database), kept.nodes)
    yield Parts(cast(Sessions, kept), history, Instances(database), {}, insight=insight)


class Lag:
    """How late the event loop comes to a timer: what an action beside the request would wait."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - _TICK_S)


async def measure(database: Database, repeat: int) -> None:
    """Print of each path: median, p99 (of less than 100: maximum), CPU, and how long the loop was held, in ms.

    SQLite works in this process, so that its CPU is included.
    """
    app = create_app(Settings(), lambda _: _parts(database))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=600) as client:
            newest = (await client.get("/v1/sessions?limit=200")).json()
            sid = next(one["sid"] for one in newest if (int(one["sid"]) - FIRST) % LONG == 0)
            insight, lag = cast(Insight, app.state.insight), Lag()
            gc.collect()
            gc.freeze()  # as a server does
            watching = asyncio.create_task(lag.watch())
            for path in (f"/ui/sessions/{sid}", *PATHS):
                times = await _timed(client, path, repeat, insight, lag)
                print(f"{path:<50} {json.dumps({name: round(ms, 1) for name, ms in times.items()})}", flush=True)
            watching.cancel()


async def _timed(client: httpx.AsyncClient, path: str, repeat: int, insight: Insight, lag: Lag) -> dict[str, float]:
    """Request the path once and then `repeat` times, each without cached figures; milliseconds by name."""
    first, spent, worked, held = 0.0, [], [], []
    for number in range(repeat + 1):
        insight.forget()
        lag.worst_s = 0.0
        began, cpu = time.perf_counter(), time.process_time()
        answer = await client.get(path)
        took = 1000 * (time.perf_counter() - began)
        assert answer.status_code == 200, (path, answer.text)
        if not number:
            first = took
            continue
        spent.append(took)
        worked.append(1000 * (time.process_time() - cpu))
        held.append(1000 * lag.worst_s)
    return {
        "first_ms": first,
        "p50_ms": statistics.median(spent),
        "p99_ms": max(spent) if len(spent) < 100 else sorted(spent)[int(0.99 * len(spent))],
        "cpu_p50_ms": statistics.median(worked),
        "held_p50_ms": statistics.median(held),
    }


async def _run(options: Any) -> None:
    database = Database(options.database)
    await database.migrate()
    if not await Listing(database).sessions(SessionFilter(), limit=1):
        await fill(database, options.sessions)
    await measure(database, options.repeat)
    await database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--database", required=True, help="Its URL; filled if it has no session.")
    parser.add_argument("--repeat", type=int, default=15)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
