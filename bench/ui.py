"""Actions beside people who look at the pages: a catalogue of 100,000 sessions in SQLite, on the server that acts.

With BENCH_UI_DATABASE, the URL of a PostgreSQL database, empty or filled by an earlier run, it has 1,000,000.
"""

import asyncio
import os
import tempfile
from functools import partial
from pathlib import Path

from bench.actions import TRUE, paced
from bench.results import Figure, Side
from bench.samples import sample
from bench.search import stalls
from bench.seeing_rows import fill
from bench.subject import Bench, served
from bench.viewers import OVERVIEWS, viewers
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import SessionFilter

_ACTING = 16


async def measure(bench: Bench) -> None:
    """One action a second in each of 16 sessions, alternately alone and with viewers."""
    one, rows = sample(), bench.of(100_000, 20_000)
    folder = Path(bench.until_end.enter_context(tempfile.TemporaryDirectory(prefix="bench-ui-")))
    url = f"sqlite:///{folder / 'catalogue.sqlite3'}"
    if given := os.environ.get("BENCH_UI_DATABASE"):
        url, rows = given, 1_000_000
    database = Database(url)
    await database.migrate()
    if not await Listing(database).sessions(SessionFilter(), limit=1):
        await fill(database, rows)
    await database.dispose()
    async with served(bench, [one.row], SANDBOX_DATABASE_URL=url) as server:
        sids = [await server.client.start(one.instance_id) for _ in range(_ACTING)]
        acting = [partial(server.client.act, sid, TRUE) for sid in sids]
        await asyncio.gather(*(act() for act in acting))
        alone, beside = list[float](), list[float]()
        pages: dict[str, list[float]] = {}
        before, errors = await stalls(server), 0
        for _ in range(bench.of(6, 2)):
            took, _, failed = await paced(acting, bench.of(20, 15))
            alone += took
            errors += failed
            async with viewers(server.process.url, rows, pages):
                took, _, failed = await paced(acting, bench.of(20, 15))
            beside += took
            errors += failed
        after = await stalls(server)
        await server.client.end(*sids)
    name = "the same sessions with nobody looking"
    note = f"{_ACTING} sessions, {len(OVERVIEWS)} overviews refreshed every 10 s, a click every 2 s"
    bench.add(
        Figure("ui_action_p99_ms", "ms", Side.p99(beside), Side.p99(alone), name, note),
        Figure("ui_action_p50_ms", "ms", Side.median(beside), Side.median(alone), name),
        Figure("ui_action_errors", "", Side(errors, len(alone) + len(beside))),
        *(Figure(f"ui_{kind}_ms", "ms", Side.median(took), note=f"{rows:,} sessions") for kind, took in pages.items()),
        Figure("ui_loop_stalls", "", Side(after - before, 1), note="busy > 50 ms or blocked > 250 ms"),
    )
