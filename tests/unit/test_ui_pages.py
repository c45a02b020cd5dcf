"""How pages are made, beside all else that the event loop does."""

import asyncio
from types import SimpleNamespace

from starlette.requests import Request

from sandbox_server.catalogue.insight.records import RunCount, SessionFilter, SessionWithVerdict
from sandbox_server.protocols.v1 import list_sessions
from sandbox_server.records import SessionRecord
from sandbox_server.ui.login import Logins
from sandbox_server.ui.render import _query, _seconds, page


class Turns:
    """How often the event loop had a turn for others."""

    def __init__(self) -> None:
        self.taken = 0

    async def take(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.taken += 1


async def test_a_long_page_is_made_in_slices() -> None:
    """A session of 50 actions full of colours held the event loop for 0.8 s, and all actions waited."""
    app = SimpleNamespace(state=SimpleNamespace(logins=Logins(lambda _: "viewer", ())))
    request = Request({"type": "http", "path": "/ui/runs", "query_string": b"", "headers": [], "app": app})
    runs = [RunCount(f"run-{number}", 8, 0, 8, 0, 4, 0.5, 1.0, 2.0) for number in range(3000)]
    turns = Turns()
    beside = asyncio.create_task(turns.take())
    answer = await page(request, "runs.html", runs=runs, asked={"sort": ""})
    beside.cancel()
    assert bytes(answer.body).count(b"/ui/groups?run=run-") == 3000
    assert turns.taken > 10  # of some 50 slices


def test_durations_and_links_for_people() -> None:
    """Hours as a row of minutes; a link that filters by nothing finds nothing."""
    assert [_seconds(value) for value in (0.0, 0.5, 59.0, 61.0, 5400.0)] == [
        "0 s",
        "500 ms",
        "59 s",
        "1 min 1 s",
        "1 h 30 min",
    ]
    assert _query({"run": "", "q": "a b", "limit": 5}, limit=None, before="7:1") == "?q=a+b&before=7%3A1"


async def test_a_long_list_is_made_in_slices() -> None:
    """A list of 1000 sessions in JSON held the event loop for 50 ms, in which all actions waited."""
    record = SessionRecord("1", "ended", "a-1", "n1", "c", 1.0, 2.0, 3.0, timings_s={"action_run": 1.0})

    class Listed:
        async def list(self, wanted: SessionFilter, *, limit: int) -> list[SessionWithVerdict]:
            return [SessionWithVerdict(record, None)] * limit

    app = SimpleNamespace(state=SimpleNamespace(sessions=Listed()))
    request = Request({"type": "http", "path": "/v1/sessions", "query_string": b"", "headers": [], "app": app})
    turns = Turns()
    beside = asyncio.create_task(turns.take())
    answer = await list_sessions(request, SessionFilter(), limit=3000)
    beside.cancel()
    assert bytes(answer.body).count(b'"timings_s"') == 0 and bytes(answer.body).count(b'"sid": "1"') == 3000
    assert turns.taken > 10
