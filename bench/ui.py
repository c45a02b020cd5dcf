"""Actions beside people who look at the pages: a catalogue of 100,000 sessions in SQLite, on the server that acts.

With BENCH_UI_DATABASE, the URL of a PostgreSQL database, empty or filled by an earlier run, it has 1,000,000.
"""

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

from bench.actions import TRUE, paced
from bench.results import Figure, Side
from bench.samples import sample
from bench.search import stalls
from bench.seeing_rows import FIRST, LAST_RUN, fill
from bench.subject import Bench, Served, served
from bench.trainer import Clock
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import SessionFilter

_ACTING = 16
_REFRESH_S = 10.0
"""As the overview's page does by itself."""
_CLICK_S = 2.0
_OVERVIEWS = ("/ui", "/ui?window_s=21600", f"/ui?run={LAST_RUN}", "/ui?window_s=600")


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
        clicks = itertools.cycle(_clicks(rows))
        alone, beside = list[float](), list[float]()
        pages: dict[str, list[float]] = {"overview": [], "session": [], "list": []}
        before, errors = await stalls(server), 0
        for _ in range(bench.of(4, 2)):
            took, _, failed = await paced(acting, bench.of(30, 15))
            alone += took
            errors += failed
            looking = [asyncio.create_task(_look(server, path, pages["overview"])) for path in _OVERVIEWS]
            looking.append(asyncio.create_task(_click(server, clicks, pages)))
            try:
                took, _, failed = await paced(acting, bench.of(30, 15))
            finally:
                for viewer in looking:
                    viewer.cancel()
                ends = await asyncio.gather(*looking, return_exceptions=True)
            for end in ends:
                if isinstance(end, Exception):
                    raise end
            beside += took
            errors += failed
        after = await stalls(server)
        await server.client.end(*sids)
    name = "the same sessions with nobody looking"
    note = f"{_ACTING} sessions, {len(_OVERVIEWS)} overviews refreshed every 10 s, a click every 2 s"
    bench.add(
        Figure("ui_action_p99_ms", "ms", Side.p99(beside), Side.p99(alone), name, note),
        Figure("ui_action_p50_ms", "ms", Side.median(beside), Side.median(alone), name),
        Figure("ui_action_errors", "", Side(errors, len(alone) + len(beside))),
        *(
            Figure(f"ui_{kind}_ms", "ms", Side.median(took), note=f"{rows:,} sessions")
            for kind, took in pages.items()
            if took
        ),
        Figure("ui_loop_stalls", "", Side(after - before, 1), note="busy > 50 ms or blocked > 250 ms"),
    )


def _clicks(rows: int) -> list[tuple[str, str]]:
    """(kind, path) in the order of somebody who looks for something."""
    last = FIRST + rows - 1
    return [
        ("list", "/ui/sessions?verdict=infra"),
        ("session", f"/ui/sessions/{last - last % 100}"),
        ("list", f"/ui/groups?run={LAST_RUN}"),
        ("list", "/ui/runs"),
        ("session", f"/ui/sessions/{last - 1}"),
        ("list", f"/ui/sessions?run={LAST_RUN}"),
        ("list", "/ui/pass-rates"),
        ("list", "/ui/groups"),
    ]


async def _look(server: Served, path: str, took: list[float]) -> NoReturn:
    while True:
        took.append(await _page(server, path))
        await asyncio.sleep(_REFRESH_S)


async def _click(server: Served, clicks: Iterator[tuple[str, str]], pages: dict[str, list[float]]) -> NoReturn:
    while True:
        kind, path = next(clicks)
        pages[kind].append(await _page(server, path))
        await asyncio.sleep(_CLICK_S)


async def _page(server: Served, path: str) -> float:
    """Its ms."""
    with Clock() as clock:
        text = await server.client.text(path)
    if "<main" not in text:
        raise RuntimeError(f"{path}: {text[:500]}")
    return clock.ms
