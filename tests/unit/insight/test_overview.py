"""Overviews of a database that does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.insight import overview
from sandbox_server.insight.overview import Insight


@asynccontextmanager
async def _never() -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


async def test_a_database_that_never_answers_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overviews are read one after the other: one that hangs would stop all others until the next start."""
    monkeypatch.setattr(overview, "_READ_S", 0.05)
    no_answer: Any = SimpleNamespace(reading=_never)
    unused: Any = SimpleNamespace()
    insight = Insight(Counts(no_answer), listing=unused, search=unused, nodes=unused)
    async with asyncio.timeout(5):
        asked = (insight.overview(), insight.overview(run="a"), insight.overview(window_s=600))
        for failed in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(failed, CatalogueUnavailable) and "0.05 s" in failed.detail
