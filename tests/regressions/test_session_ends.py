"""Ends, reaper passes and verdicts that are interrupted, or run concurrently, at chosen moments."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sandbox_server.app.build import Server, open_server
from sandbox_server.catalogue.insight.records import SessionFilter
from sandbox_server.errors import (
    CatalogueUnavailable,
    EngineUnavailable,
    OwnedElsewhere,
    SandboxDiskFull,
    SandboxLost,
)
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import Role
from sandbox_server.sessions.checkpointing import Checkpointing
from sandbox_server.settings import Settings
from sandbox_server.verdicts import VerdictName

ACTION = "<function=execute_bash>\n<parameter=command>\necho x > x.txt\n</parameter>\n</function>"
INSTANCE = "samples__timespan-7"
"""Graded by a command: the first session of one that swebench judges has the server start that library's process."""


class Died(BaseException):
    """The server died; only simulated, in this process."""


def die_after(owner: Any, name: str, call: int = 1) -> None:
    """The server dies at the end of the `call`-th call of the method."""
    method, calls = getattr(owner, name), 0

    async def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = await method(*arguments, **options)
        if calls == call:
            raise Died
        return result

    setattr(owner, name, dying)


STEPS: dict[str, Callable[[Server], None]] = {
    "marked as ending": lambda s: die_after(s.foundation.data.store, "move"),
    "patch kept": lambda s: die_after(s.foundation.data.history, "save_patch"),
    "end in SQL": lambda s: die_after(s.foundation.data.history, "save_session"),
    "end in Redis": lambda s: die_after(s.foundation.data.store, "move", call=2),
    "container removed": lambda s: die_after(s.foundation.runtime, "remove"),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_server_that_died_during_an_end(settings: Settings, step: str) -> None:
    """A session stays half ended for ever: without a patch or verdict, or with a container or slot."""
    async with open_server(settings) as first:
        sid = await first.sessions.service.start(INSTANCE)
        await first.sessions.service.act(sid, ACTION)
        STEPS[step](first)
        if step == "container removed":  # after the answer
            assert await first.sessions.service.postprocess(sid) is not None
        else:
            with pytest.raises(Died):
                await first.sessions.service.postprocess(sid)
    async with open_server(settings) as second:
        for known in (
            await second.foundation.data.store.session(sid),
            await second.foundation.data.history.session(sid),
        ):
            assert known is not None and (known.state, known.end_reason) == ("ended", "postprocess")
        await second.sessions.ending.close()  # the removals under way
        assert all(container.role is not Role.SESSION for container in await second.foundation.runtime.list())
        assert second.sessions.starts.used == 0
        assert b"+++ b/x.txt" in ((await second.sessions.service.patch(sid)).diff or b"")
        if grading := second.gradings.rewards._running.get(sid):  # begun though nobody asks for the reward
            await grading
        assert await second.foundation.data.history.graded(sid) is not None
        assert (await second.sessions.service.reward(sid)).verdict.name is VerdictName.UNRESOLVED


@pytest.mark.parametrize("name", ["move", "take", "save_patch"])
async def test_a_server_that_stood_still_during_an_end(settings: Settings, name: str) -> None:
    """Its session went on elsewhere, and is ended or lost, or gets the patch and the verdict of what it was before."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        data = server.foundation.data
        owner: Any = {"move": data.store, "take": server.sessions.captures, "save_patch": data.history}[name]
        method = getattr(owner, name)

        async def late(*arguments: Any, **options: Any) -> Any:
            lost = await data.store.session(sid)
            assert lost is not None
            await data.store.adopt(replace(lost, node="elsewhere", container_id="c0ffee"), lost)
            if name == "take":
                raise SandboxLost("its container is gone: the reaper has found the session elsewhere")
            return await method(*arguments, **options)

        setattr(owner, name, late)
        with pytest.raises(OwnedElsewhere):
            await server.sessions.ending.end(sid, "idle")
        now = await data.store.session(sid)
        assert now is not None and (now.node, now.state) == ("elsewhere", "live" if name == "move" else "ending")
        assert await data.history.patch(sid) is None and not server.gradings.rewards.known(sid)
        in_sql = await data.history.session(sid)
        assert in_sql is None or in_sql.state == "live"


@pytest.mark.parametrize("before", ["end", "save_patch"])
async def test_a_patch_of_a_node_that_the_session_has_left(settings: Settings, before: str) -> None:
    """A node that stood still stores its patch before the session's end elsewhere, and has not looked again since."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        data, ending = server.foundation.data, server.sessions.ending
        late = PatchRecord(sid, INSTANCE, b"--- a/old\n", "", "", 1.0, "5a", container_id="c0ffee")
        owner: Any = ending if before == "end" else data.history
        method, save = getattr(owner, before), data.history.save_patch

        async def after_the_other(*arguments: Any) -> Any:
            setattr(owner, before, method)
            await save(late)
            return await method(*arguments)

        setattr(owner, before, after_the_other)
        await ending.end(sid, "idle")
        assert b"+++ b/x.txt" in ((await server.sessions.service.patch(sid)).diff or b"")


@pytest.mark.parametrize("moment", ["containers listed", "sessions listed"])
async def test_a_start_during_a_reapers_pass(settings: Settings, moment: str) -> None:
    """A start that takes a second or more on a busy host is reaped as lost or as an orphan."""
    async with open_server(settings) as server:
        owner: Any = server.foundation.runtime if moment == "containers listed" else server.foundation.data.store
        name = "list" if moment == "containers listed" else "live"
        method, started = getattr(owner, name), []

        async def and_then_a_start(*arguments: Any) -> Any:
            found = await method(*arguments)
            if not started:
                started.append(await server.sessions.service.start(INSTANCE))
                await asyncio.sleep(1.2)
            return found

        setattr(owner, name, and_then_a_start)
        await server.upkeep.reaper.sweep()
        assert (await server.sessions.service.act(started[0], ACTION)).error_code == ""
        await server.sessions.service.close(started[0])
        assert server.sessions.starts.used == 0


async def test_a_start_that_ends_between_the_reapers_two_looks(settings: Settings) -> None:
    """A session that the reaper finds in SQL, but had not found in Redis, is put back without its newest actions."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        async with asyncio.timeout(20):
            await server.sessions.log.drain()
        store: Any = server.foundation.data.store
        look, looks = store.session, 0

        async def too_early_once(asked: str) -> SessionRecord | None:
            nonlocal looks
            looks += 1
            return None if looks == 1 else await look(asked)

        store.session = too_early_once
        found = await server.upkeep.recovery._rebuilding.remembered(sid)
        store.session = look
        assert found is not None and found.actions == 1
        assert [action.seq for action in await store.actions(sid)] == [1]
        assert (await server.sessions.service.act(sid, ACTION)).seq == 2


async def test_a_rollback_that_fails_is_no_interrupted_action(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is told that its previous action was interrupted and its output lost."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        with monkeypatch.context() as broken:
            broken.setattr(server.foundation.runtime, "create", _unavailable)
            with pytest.raises(EngineUnavailable):
                await server.sessions.rollback.rollback(sid, 0, idempotency_key="back")
        told = await server.sessions.service.act(sid, ACTION.replace("echo x > x.txt", "cat x.txt"))
        assert (told.exit_code, told.seq) == (0, 2) and "interrupted" not in told.content, told


async def test_what_finds_no_room_now_can_be_tried_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the engine's disk was full, a rollback was 409, for good, and a session that was to wake was given up."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        with monkeypatch.context() as full:
            full.setattr(Checkpointing, "restore", _no_room)
            with pytest.raises(SandboxDiskFull) as raised:
                await server.sessions.rollback.rollback(sid, 0, idempotency_key="back")
            assert (raised.value.http_status, raised.value.retryable) == (507, True)
            assert await server.sessions.sleeping._sleep(sid)
            assert (await server.sessions.service.act(sid, ACTION)).error_code == "session_restoring"
        told = await server.sessions.service.act(sid, ACTION.replace("echo x > x.txt", "cat x.txt"))
        assert (told.exit_code, told.seq) == (0, 2), told
        assert (await server.sessions.rollback.rollback(sid, 0, idempotency_key="back")).to == 0


async def _no_room(*arguments: Any, **options: Any) -> None:
    raise SandboxDiskFull("staged")


async def _unavailable(*arguments: Any, **options: Any) -> None:
    raise EngineUnavailable("staged")


async def test_slots_are_given_back_once_each(settings: Settings) -> None:
    """Concurrent ends lose a slot for good, or an end that is reported twice frees another session's slot."""
    async with open_server(settings.model_copy(update={"max_sessions": 2})) as server:
        starts = server.sessions.starts
        instance = await server.foundation.data.instances.by_id(INSTANCE)
        waiting = {asyncio.create_task(starts.start(instance)) for _ in range(6)}
        pending = waiting
        for began in (2, 4, 6):
            while len(waiting) - len(pending) < began:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.3)
            assert (sum(task.done() for task in waiting), starts.used) == (began, 2)
            if began == 2:
                first = {task for task in waiting if task.done()}
                sids = [task.result().sid for task in first]
                # one is reported twice, and one never had a slot
                await asyncio.gather(*(starts.release(sid) for sid in [*sids, *sids, "7"]))
            elif began == 4:
                await asyncio.gather(*(starts.release(task.result().sid) for task in waiting - first if task.done()))
        assert len({task.result().sid for task in waiting}) == 6


async def test_a_start_that_is_cut_off_gives_its_slot_back(settings: Settings) -> None:
    """Clients that disconnect during their starts fill the node for good."""
    async with open_server(settings.model_copy(update={"max_sessions": 3, "pool_size": 0})) as server:
        starts = server.sessions.starts
        instance = await server.foundation.data.instances.by_id(INSTANCE)
        answered: set[str] = set()
        for pause_s in (0.0, 0.001, 0.05, 0.15, 0.3):
            cut = [asyncio.create_task(starts.start(instance)) for _ in range(3)]
            await asyncio.sleep(pause_s)
            for task in cut:
                task.cancel()
            done = await asyncio.gather(*cut, return_exceptions=True)
            sids = {record.sid for record in done if isinstance(record, SessionRecord)}
            await asyncio.gather(*(starts.release(sid) for sid in sids))
            answered |= sids
        assert starts.used == 0
        record = await asyncio.wait_for(starts.start(instance), 60)
        while starts.pool._tasks:  # what nobody waited for any more is made, then removed
            await asyncio.wait(starts.pool._tasks)
        kept = {info.sid for info in await server.foundation.runtime.list()}
        assert kept == answered | {record.sid}


async def test_a_session_that_was_given_to_a_repeated_start_stays(settings: Settings) -> None:
    """A client that hangs up and asks again gets a session that is being closed for its first request."""
    async with open_server(settings) as server:
        sessions = server.sessions.service
        first = await sessions.start(INSTANCE, run="a", owner="b", idempotency_key="k")
        assert await sessions.start(INSTANCE, run="a", owner="b", idempotency_key="k") == first
        assert not await sessions.give_back(first, idempotency_key="k")
        assert (await sessions.act(first, ACTION)).error_code == ""
        second = await sessions.start(INSTANCE, run="a", owner="b", idempotency_key="k2")
        assert await sessions.give_back(second, idempotency_key="k2") and await sessions.state(second) == "ended"
        assert await sessions.start(INSTANCE, run="a", owner="b", idempotency_key="k2") != second


async def test_a_verdict_that_cannot_be_written(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that is not in SQL is answered, and later a different one."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, ACTION)
        with monkeypatch.context() as broken:

            async def unavailable(*_: object) -> None:
                raise CatalogueUnavailable("the disk is full")

            broken.setattr(server.foundation.data.history, "save_graded", unavailable)
            with pytest.raises(CatalogueUnavailable):
                await server.sessions.service.reward(sid)
        first, second = await server.sessions.service.reward(sid), await server.sessions.service.reward(sid)
        assert first.verdict.name is VerdictName.UNRESOLVED
        assert first == second


async def test_a_start_while_sql_is_locked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow or locked database delays starts, or a session that started then is missing in the history."""
    async with open_server(settings) as server:
        with monkeypatch.context() as broken:

            async def locked(*_: object) -> None:
                raise CatalogueUnavailable("database is locked")

            broken.setattr(server.foundation.data.history, "save_sessions", locked)
            sid = await server.sessions.service.start(INSTANCE)
            assert [seen.record.sid for seen in await server.sessions.service.list(SessionFilter(state="live"))] == [
                sid
            ]
            assert await server.foundation.data.history.session(sid) is None
        async with asyncio.timeout(20):
            await server.sessions.log.drain()
        written = await server.foundation.data.history.session(sid)
        assert written is not None and written.state == "live"


async def test_a_start_that_a_dead_server_did_not_write_to_sql(settings: Settings) -> None:
    """A live session is only in Redis: a loss of Redis loses it, and its end finds no row to update."""
    async with open_server(settings) as first:
        first.sessions.log.add = lambda record: None  # type: ignore[method-assign]  # it died before it came to it
        sid = await first.sessions.service.start(INSTANCE)
        assert await first.foundation.data.history.session(sid) is None
    async with open_server(settings) as second:
        known = await second.foundation.data.history.session(sid)
        assert known is not None and known.state == "live" and known.timings_s["start_container"] > 0
        ended = await second.sessions.service.postprocess(sid)
        assert ended is not None and ended.timings_s["end_patch"] > 0
        assert (await second.sessions.service.view(sid)).timings_s["end_patch"] == ended.timings_s["end_patch"]


async def test_an_end_that_never_succeeds_is_bounded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session stays `ending` for hours, with its container and its slot."""
    bounded = settings.model_copy(update={"ending_max_s": 4.0})
    async with open_server(bounded) as server:
        sid = await server.sessions.service.start(INSTANCE)

        async def fails(*arguments: object, **options: object) -> None:
            raise EngineUnavailable("no container can be made")

        monkeypatch.setattr(server.sessions.captures, "take", fails)
        with pytest.raises(EngineUnavailable):
            await server.sessions.ends.end(sid, "postprocess")
        record = await server.foundation.data.store.session(sid)
        assert record is not None and record.state == "ending"
        await asyncio.sleep(4.1)
        ended = await server.sessions.ends.end(sid, "postprocess")
        assert ended is not None and ended.state == "lost" and "SANDBOX_ENDING_MAX_S" in ended.cause
        await server.sessions.ending.wait_until_removed(sid)
        assert not [c for c in await server.foundation.runtime.list() if c.sid == sid and c.role is Role.SESSION]
