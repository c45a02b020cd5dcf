"""The order of a list, as its URL says."""

from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from sandbox_server.catalogue.insight.records import RunCount
from sandbox_server.ui.login import Logins
from sandbox_server.ui.render import page
from sandbox_server.ui.sorting import RUNS, ordered


def count(run: str, mean: float | None) -> RunCount:
    return RunCount(run, 8, 0, 8, 0, 4, mean, 1.0, 2.0)


ROWS = [count("a", 0.5), count("b", None), count("c", 0.75), count("d", 0.25)]


def names(sort: str) -> str:
    return "".join(row.run for row in ordered(ROWS, sort, RUNS))


def test_rows_without_a_value_are_last() -> None:
    """A list of what nobody has graded yet hides the largest and the least."""
    assert (names("mean_reward"), names("-mean_reward")) == ("dacb", "cadb")
    assert (names("-run"), names("sessions"), names(""), names("nothing")) == ("dcba", "abcd", "abcd", "abcd")


async def test_a_head_leads_to_the_other_order() -> None:
    """The order is lost with a click on a filter, or a screen reader does not tell it."""
    app = SimpleNamespace(state=SimpleNamespace(logins=Logins(lambda _: "viewer", ())))
    request = Request({"type": "http", "path": "/ui/runs", "query_string": b"", "headers": [], "app": app})
    asked: dict[str, Any] = {"since": "7", "sort": "-lost"}
    text = bytes((await page(request, "runs.html", runs=ROWS, asked=asked)).body).decode()
    assert '<a href="?since=7&amp;sort=lost">Lost</a>' in text and text.count("aria-sort") == 1
    assert 'class="n" aria-sort="descending">' in text
    assert '<a href="?since=7&amp;sort=-run">Run</a>' in text
