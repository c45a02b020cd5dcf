"""Overviews of a database that does not answer."""

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.insight import overview
from sandbox_server.insight.overview import Insight


async def _never(*_: Any, **__: Any) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_database_that_never_answers_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overviews are read one after the other: one that hangs would stop all others until the next start."""
    monkeypatch.setattr(overview, "_READ_S", 0.05)
    counts: Any = SimpleNamespace(verdicts=_never, passed=_never)
    insight = Insight(counts, listing=SimpleNamespace(), search=SimpleNamespace(), nodes=_never)  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        asked = (insight.overview(), insight.overview(run="a"), insight.overview(window_s=600))
        for failed in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(failed, CatalogueUnavailable) and "0.05 s" in failed.detail
