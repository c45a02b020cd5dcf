"""`gc` says that a container is gone once the engine lists it no more."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from sandbox_server.cli.gc import remove_all
from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.base import Runtime


@dataclass
class SlowEngine:
    """Lists a container for `looks` more looks after its removal was asked for, as with a layer of 10 GB."""

    looks: int
    refuses: bool = False
    asked: int = 0
    swept: int = 0

    async def list(self) -> list[Any]:
        there = not self.asked or self.looks > 0
        self.looks -= bool(self.asked)
        return [type("Info", (), {"container_id": "0123456789abcdef"})] if there else []

    async def remove(self, container_id: str) -> None:
        """Returns at once, since an earlier removal is under way; `refuses`: answers as after a call that timed out."""
        self.asked += 1
        if self.refuses:
            raise EngineUnavailable("no answer within 65 s")

    async def remove_leftovers(self) -> int:
        self.swept += 1
        return 0


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_removal_that_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    """Two containers of 10 GB each outlived a server whose `gc` had said that they were removed."""
    monkeypatch.setattr("sandbox_server.cli.gc._LOOK_S", 0.0)
    engine = SlowEngine(3, refuses)
    assert await remove_all(cast(Runtime, engine), wait_s=60.0) == (1, [])
    assert (engine.asked, engine.looks, engine.swept) == (1, -1, 1)


async def test_what_is_not_gone_in_time_is_named() -> None:
    engine = SlowEngine(3)
    assert await remove_all(cast(Runtime, engine), wait_s=0.0) == (1, ["0123456789ab"])
    assert engine.swept == 1
