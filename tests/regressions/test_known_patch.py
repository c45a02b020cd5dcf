"""The reward of a patch that was graded for another session."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import event

from sandbox_server.app.build import open_server
from sandbox_server.sessions import ending
from sandbox_server.settings import Settings
from sandbox_server.verdicts import VerdictName

from .test_session_ends import ACTION, INSTANCE


async def test_the_reward_of_a_known_patch_takes_two_statements(settings: Settings) -> None:
    """Each statement and hop waits for a thread while containers are removed beside it: 19 ms where 6 are enough."""
    async with open_server(settings) as server:
        sessions = server.sessions.service
        first, second = [await sessions.start(INSTANCE) for _ in range(2)]
        for sid in (first, second):
            await sessions.act(sid, ACTION)
        await sessions.postprocess(first)
        known = (await sessions.reward(first)).verdict
        said: list[str] = []

        def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if second in str(parameters):  # loops of the server ask for others too
                said.append(" ".join(statement.split()))

        database = server.foundation.database
        for engine in (database._apart, database._engine.sync_engine):
            event.listen(engine, "before_cursor_execute", note)
        await sessions.postprocess(second)
        verdict = (await sessions.reward(second)).verdict
        about = [statement for statement in said if "verdicts" in statement or "receipts" in statement]
        assert [statement.split(" (")[0] for statement in about] == ["INSERT INTO verdicts", "INSERT INTO receipts"]
        assert (known.name, verdict.timings_s["tests"]) == (VerdictName.UNRESOLVED, known.timings_s["tests"])


async def test_a_known_verdict_is_written_before_the_container_is_removed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal keeps server and disk busy for longer than the verdict takes. It waits no longer for tests that run."""
    async with open_server(settings) as server:
        sessions, data = server.sessions.service, server.foundation.data
        save, remove = data.history.save_graded, server.foundation.runtime.remove
        answered, order = asyncio.Event(), list[str]()

        async def save_late(*arguments: Any) -> Any:
            await answered.wait()
            saved = await save(*arguments)
            order.append("verdict")
            return saved

        async def note(container_id: str) -> None:
            if container_id == its_container:
                order.append("removal")
            await remove(container_id)

        monkeypatch.setattr(data.history, "save_graded", save_late)
        monkeypatch.setattr(server.foundation.runtime, "remove", note)
        for bound_s, expected in ((60.0, ["verdict", "removal"]), (0.0, ["removal", "verdict"])):
            monkeypatch.setattr(ending, "_VERDICT_FIRST_S", bound_s)
            answered.clear()
            order.clear()
            sid = await sessions.start(INSTANCE)
            record = await data.store.session(sid)
            assert record is not None
            its_container = record.container_id
            await sessions.act(sid, ACTION)
            await sessions.postprocess(sid)
            for _ in range(100):  # a removal that does not wait begins by then
                await asyncio.sleep(0)
            answered.set()
            await sessions.reward(sid)
            await server.sessions.ending.wait_until_removed(sid)
            assert order == expected


async def test_a_grading_that_another_node_may_take_keeps_no_container_here(settings: Settings) -> None:
    """Its container runs for five minutes after another node has graded it, as one of the few that are made ahead."""
    async with open_server(settings) as server:
        sessions, rewards = server.sessions.service, server.gradings.rewards
        containers = rewards._queue._grading._containers
        begin: Any = rewards.begin
        made_ahead: list[int] = []

        def without_room(*arguments: Any) -> None:
            made_ahead.append(containers.waiting)
            rewards.alone = rewards.accepting = False  # the engine was gone until now
            begin(*arguments)

        rewards.begin = without_room  # type: ignore[method-assign]
        sid = await sessions.start(INSTANCE)
        await sessions.act(sid, ACTION)
        await sessions.postprocess(sid)
        assert made_ahead[0] == 1 and containers.waiting == 0
