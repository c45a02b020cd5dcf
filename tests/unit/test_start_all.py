"""A group of starts: some may fail, and what was started for nobody is ended."""

from collections.abc import Coroutine

import pytest

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.starts.start_all import start_all


async def start(outcome: str | Exception) -> str:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def starts(*outcomes: str | Exception) -> list[Coroutine[None, None, str]]:
    return [start(outcome) for outcome in outcomes]


FULL = CapacityError("no slot", reason="slots")


async def test_some_starts_of_a_group_may_fail() -> None:
    """A group would be lost for one full node, or one that has no member would look begun."""
    ended: list[str] = []

    async def close(sid: str) -> None:
        ended.append(sid)
        raise ServiceError("it has ended already")

    assert await start_all(starts("1", FULL, "2"), close) == (["1", "2"], [FULL])
    with pytest.raises(CapacityError):
        await start_all(starts(FULL, FULL), close)
    assert ended == []
    with pytest.raises(ZeroDivisionError):
        await start_all(starts("1", ZeroDivisionError(), "2"), close)
    assert ended == ["1", "2"], "after a defect nobody knows of them"
