"""Whose CPU time is counted, and how often; `tests/live/test_spending.py` reads it from real containers."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sandbox_server.pool.metering import Metering
from sandbox_server.sandbox.base import CpuTime

RECORDS = {
    "1": SimpleNamespace(container_id="c1", owner="", run="run-a"),
    "2": SimpleNamespace(container_id="c2", owner="alice", run="a label of hers"),
}


async def test_each_container_is_counted_for_its_account_until_it_is_written() -> None:
    """A tenant would spend nothing by labels of its own, or a removed container would be counted for ever."""
    removed = [CpuTime("c2", "2", 7.0), CpuTime("c3", "of no session", 1.0)]
    runtime: Any = SimpleNamespace(take_last_cpu_times=lambda: removed, cpu_times=AsyncMock(return_value={"c1": 3.0}))
    store: Any = SimpleNamespace(
        live=AsyncMock(return_value=[RECORDS["1"]]), session=AsyncMock(side_effect=RECORDS.get)
    )
    usage: Any = SimpleNamespace(count=AsyncMock(side_effect=OSError("Redis is away")))
    metering = Metering(runtime, store, usage, node="n")
    with pytest.raises(OSError, match="away"):
        await metering.look()
    removed.clear()
    usage.count.side_effect = None
    for expected in ([("c1", "run-a", 3.0), ("c2", "alice", 7.0)], [("c1", "run-a", 3.0)]):
        await metering.look()
        (readings,) = usage.count.await_args.args
        assert [(one.meter, one.account, one.shows_s) for one in readings] == expected
