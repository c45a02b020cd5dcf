"""How the databases find what the pages show: never by reading all sessions, actions or verdicts."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import event

from bench.seeing_rows import FIRST, LAST_RUN, fill
from sandbox_server import clock
from sandbox_server.catalogue.database import Database
from sandbox_server.catalogue.history import History
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import SessionFilter
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.insight.overview import Insight
from sandbox_server.insight.rates import DAY_S
from sandbox_server.state.nodes import NodeRecord

_LARGE = "sessions|actions|verdicts|patches|receipts|metrics|rollouts"
_WHOLE = re.compile(
    rf"(?:Seq Scan on|SCAN) (?:{_LARGE})\b(?! USING)"
    # every entry of an index; backward: the newest, as many as a list shows
    r"|Index (?:Only )?Scan using \S+ on (?:sessions|actions)\b[^\n]*\n(?!\s*Index Cond)"
)
_SID = str(FIRST + 77)
_INSTANCE = "bench__task-9"


async def test_no_page_reads_a_whole_table(database: Database) -> None:
    """A page takes as long as the service is old: seconds, with a million sessions."""
    await fill(database, 400)
    asked = await _asked(database, _looks(database))
    assert len(asked) > 25
    wrong = []
    async with database.reading() as connection:
        postgres = connection.dialect.name == "postgresql"
        if postgres:  # a few rows are sooner read without an index, if there is one
            await connection.exec_driver_sql("SET enable_seqscan = off")
        explain = "EXPLAIN " if postgres else "EXPLAIN QUERY PLAN "
        for statement, values in asked.items():
            found = (await connection.exec_driver_sql(explain + statement, values)).all()
            plan = "".join(f"{row[-1]}\n" for row in found)
            if _WHOLE.search(plan):
                wrong.append((statement, plan))
    assert wrong == []


def _looks(database: Database) -> list[Callable[[], Awaitable[object]]]:
    """What the pages ask of SQL."""
    counts, listing, history = Counts(database), Listing(database), History(database)

    async def nodes() -> list[NodeRecord]:
        return []

    insight = Insight(counts, listing, ActionSearch(database), nodes)
    day = clock.now() - DAY_S
    filters = (
        SessionFilter(),
        SessionFilter(run=LAST_RUN),
        SessionFilter(run=LAST_RUN, instance=_INSTANCE),
        SessionFilter(instance=_INSTANCE),
        SessionFilter(state="live"),
        SessionFilter(verdict="tampered"),
        SessionFilter(verdict="tampered", run=LAST_RUN),
        SessionFilter(before=(clock.now(), _SID)),
    )
    return [
        lambda: insight.overview(),
        lambda: insight.overview(run=LAST_RUN),
        *(lambda wanted=wanted: listing.sessions(wanted, limit=50) for wanted in filters),  # type: ignore[misc]
        lambda: counts.runs(day),
        lambda: counts.groups(day, limit=100),
        lambda: counts.groups(day, run=LAST_RUN, instance=_INSTANCE),
        lambda: insight.rates.now(),
        lambda: listing.verdicts_of(_INSTANCE),
        lambda: listing.tokens_of([_SID]),
        lambda: listing.family(_SID),
        lambda: history.session(_SID),
        lambda: history.actions(_SID, after=0, limit=50),
        lambda: history.patch(_SID),
        lambda: history.graded(_SID),
        lambda: history.receipt_owner("none"),
        lambda: history.grading_seconds(_INSTANCE),
    ]


async def _asked(database: Database, looks: list[Callable[[], Awaitable[object]]]) -> dict[str, Any]:
    """Statement -> the values of its first execution."""
    asked: dict[str, Any] = {}

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "WITH")):
            asked.setdefault(statement, values)

    engine = database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        for look in looks:
            await look()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return asked
