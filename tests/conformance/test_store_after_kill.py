"""kill -9 of a server that holds a session in the middle of an action, and the next server on the same data."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_server.app.server_lock import NodeNameTaken
from sandbox_server.app.state import open_store
from sandbox_server.errors import CatalogueUnavailable, SessionBusy
from sandbox_server.records import ActionRecord, InFlight
from sandbox_server.settings import Settings
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.tasks import Loops
from tests.live.forking import forker

from .state_backends import external

DYING = """
import asyncio, os, sys, time
from pathlib import Path
from sandbox_server.app.state import open_store
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.settings import Settings
from sandbox_server.tasks import Loops

class Down:
    async def add_actions(self, actions):
        raise CatalogueUnavailable("down")

async def main():
    async with open_store(Settings(node_id="n1"), Down(), Loops()) as state:
        store, now = state.store, time.time()
        await store.put_session(SessionRecord("7", "live", "a__b-1", "n1", "c0ffee", now, now, now + 60))
        async with store.turn("7", InFlight("first", now, now + 9), wait_s=5) as turn:
            action = ActionRecord("7", 1, "first", "o", "t", "finished", 0, now, 0.1)
            await turn.acknowledge(action, cwd="/", talk_turns=0, timings_s={})
        await store.history("7", "c0ffee").push("/a", "before")
        async with store.turn("7", InFlight("second", now, now + 9), wait_s=5):
            print("holding", flush=True)
            await asyncio.sleep(100)

asyncio.run(main())
"""


class Sink:
    def __init__(self) -> None:
        self.rows: list[ActionRecord] = []
        self.down = False
        self.filled = asyncio.Event()

    async def add_actions(self, actions: Sequence[ActionRecord]) -> None:
        if self.down:
            raise CatalogueUnavailable("down")
        self.rows += actions
        self.filled.set()


@pytest.fixture(params=["embedded", "external"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, object]]:
    """What the settings of a server that was killed while it held session 7 were."""

    def kill_one(values: dict[str, object]) -> dict[str, object]:
        environment = {f"SANDBOX_{name.upper()}": str(value) for name, value in values.items()}
        reading, writing = os.pipe2(os.O_CLOEXEC)
        with open(reading) as said:
            process = forker().start(["-c", DYING], os.environ | environment, writing, writing)
            os.close(writing)
            assert "holding\n" in iter(said.readline, "")  # after what it logs
            process.send_signal(signal.SIGKILL)
            assert process.wait(20) == -signal.SIGKILL
        return values

    data = {"data_dir": tmp_path / "data"}
    if request.param == "embedded":
        yield kill_one(data)
    else:
        with external(tmp_path) as url:
            data["data_dir"].mkdir()
            yield kill_one(data | {"redis_url": url})


async def test_the_same_node_goes_on_at_once(killed: dict[str, object]) -> None:
    """Every session would answer busy for half a minute, and the policy would not learn what was cut off."""
    sink = Sink()
    began = time.monotonic()
    async with open_store(Settings(node_id="n1", journal_flush_s=0.05, **killed), sink, Loops()) as state:
        store = state.store
        assert [record.sid for record in await store.live("n1")] == ["7"]
        async with store.turn("7", InFlight("third", 1.0, 2.0), wait_s=15) as turn:
            assert turn.may_run and turn.record.actions == 1 and turn.interrupted.content == "second"
        assert time.monotonic() - began < 15
        assert [action.content for action in await store.actions("7")] == ["first"]
        assert await store.history("7", "c0ffee").pop("/a") == "before"
        await asyncio.wait_for(sink.filled.wait(), 10)
    assert [action.content for action in sink.rows] == ["first"]


async def test_another_node_waits_for_the_lease(killed: dict[str, object]) -> None:
    """A slow server would be taken for a dead one."""
    async with open_store(Settings(node_id="n2", **killed), Sink(), Loops()) as state:
        with pytest.raises(SessionBusy):
            async with state.store.lock("7", 0.3):
                raise AssertionError
    async with open_store(Settings(node_id="n1", **killed), Sink(), Loops()) as state, state.store.lock("7", 0.3):
        pass


async def test_an_orderly_end_with_sql_down_keeps_the_journal(killed: dict[str, object]) -> None:
    """The shutdown would fail, or forget what it could not write."""
    sink = Sink()
    sink.down = True
    async with open_store(Settings(node_id="n1", **killed), sink, Loops()):
        pass
    sink.down = False
    async with open_store(Settings(node_id="n1", **killed), sink, Loops()):
        pass
    assert [action.content for action in sink.rows] == ["first"]


async def test_a_second_server_of_a_name_changes_nothing(tmp_path: Path) -> None:
    """It was refused, but the leases of the first one were void by then, until its next heartbeat."""
    with external(tmp_path) as url:
        settings = Settings(node_id="n1", redis_url=url, data_dir=tmp_path, node_beat_s=0.2)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        async with open_store(settings, Sink(), Loops()) as state:
            record = NodeRecord("n1", "http://n1", state.store.boot)
            assert await state.nodes.beat(record)
            opening = asyncio.create_task(_opened(settings.model_copy(update={"data_dir": elsewhere})))
            while not opening.done():
                await asyncio.sleep(0.05)
                record = replace(record, beats=record.beats + 1)
                assert await state.nodes.beat(record), "this is no longer the node's current boot"
            with pytest.raises(NodeNameTaken):
                opening.result()


async def _opened(settings: Settings) -> None:
    async with open_store(settings, Sink(), Loops()):
        pass
