"""Redis comes back with an older copy of its data, at chosen moments: no action is lost or done twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from sandbox_server import clock
from sandbox_server.app.build import Server, open_server
from sandbox_server.boxes.planning import BoxRequest
from sandbox_server.errors import SandboxLost, StateUnavailable
from sandbox_server.records import BoxKind
from sandbox_server.settings import Settings

from .test_session_ends import ACTION, INSTANCE


async def _older(redis: Any) -> Callable[[], Awaitable[None]]:
    """Take a copy of the data of Redis; the result puts it back."""
    copy = {key: (await redis.dump(key), await redis.pttl(key)) for key in await redis.keys("*")}

    async def put_back() -> None:
        for key in await redis.keys("*"):
            await redis.delete(key)
        for key, (value, ttl_ms) in copy.items():
            if value is not None:  # it expired between the two commands
                await redis.restore(key, max(0, ttl_ms), value, replace=True)

    return put_back


async def _in_sql(server: Server, sid: str, actions: int) -> None:
    async with asyncio.timeout(20):
        await server.sessions.log.drain()
        while len(await server.foundation.data.history.actions(sid)) < actions:  # noqa: ASYNC110 -- no event for it
            await asyncio.sleep(0.05)


SECOND = ACTION.replace("x.txt", "y.txt")


async def test_redis_comes_back_with_an_older_copy_of_its_data(settings: Settings) -> None:
    """An acknowledged action runs again when it is repeated, and another one gets its number."""
    async with open_server(settings) as server:
        service, data = server.sessions.service, server.foundation.data
        sid = await service.start(INSTANCE)
        await service.act(sid, ACTION, idempotency_key="first")
        put_back = await _older(data.store._connection.redis)
        told = await service.act(sid, SECOND, idempotency_key="second")
        await _in_sql(server, sid, 2)
        await put_back()
        data.store.acknowledged.forget(sid)  # a server that has just begun
        await server.upkeep.recovery.recover()
        assert (await service.act(sid, SECOND, idempotency_key="second")) == told
        assert (await service.act(sid, ACTION, idempotency_key="third")).seq == 3
        assert [action.idempotency_key for action in await data.store.actions(sid)] == ["first", "second", "third"]


@pytest.mark.parametrize("copied", ["before", "during", "never"])
async def test_redis_comes_back_older_under_a_running_server(settings: Settings, copied: str) -> None:
    """As before, with actions that SQL has not got either; `copied`: when the copy was made, seen from the second."""
    async with open_server(settings.model_copy(update={"journal_flush_s": 3600.0})) as server:
        service, store = server.sessions.service, server.foundation.data.store
        redis: Any = store._connection.redis
        sid = await service.start(INSTANCE)
        await service.act(sid, ACTION, idempotency_key="first")
        await _in_sql(server, sid, 0)
        put_back = redis.flushall if copied == "never" else await _older(redis)
        append = ACTION.replace("echo x > x.txt", "sleep 0.5; echo y >> y.txt")
        second = asyncio.create_task(service.act(sid, append, idempotency_key="second"))
        if copied == "during":
            while not await store.interrupted(sid):  # noqa: ASYNC110 -- nor for this
                await asyncio.sleep(0.01)
            put_back = await _older(redis)
        told = await second
        await put_back()
        assert await service.act(sid, append, idempotency_key="second") == told
        count = ACTION.replace("echo x > x.txt", "test $(wc -l < y.txt) = 1")
        third = await service.act(sid, count, idempotency_key="third")
        assert (third.seq, third.exit_code) == (3, 0) and "interrupted" not in third.content, third
        assert [action.idempotency_key for action in await store.actions(sid)] == ["first", "second", "third"]


async def test_redis_comes_back_older_while_an_action_runs(settings: Settings) -> None:
    """The action that runs is refused at its end, and runs again when it is repeated."""
    async with open_server(settings) as server:
        service, store = server.sessions.service, server.foundation.data.store
        sid = await service.start(INSTANCE)
        put_back = await _older(store._connection.redis)
        await service.act(sid, ACTION, idempotency_key="first")
        acknowledge: Any = store._turns.acknowledge

        async def after_the_loss(*arguments: Any) -> None:
            store._turns.acknowledge = acknowledge  # type: ignore[method-assign]
            await put_back()
            await acknowledge(*arguments)

        store._turns.acknowledge = after_the_loss  # type: ignore[method-assign]
        told = await service.act(sid, SECOND, idempotency_key="second")
        assert (told.error_code, told.seq) == ("", 2)
        assert await service.act(sid, SECOND, idempotency_key="second") == told


@pytest.mark.parametrize("busy", [False, True])
async def test_redis_comes_back_older_before_an_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """A code search that has answered ends without its answer; a reaper ends sessions as idle that were just used.

    `busy`: somebody else has the session as the reaper begins its pass.
    """
    async with open_server(settings.model_copy(update={"session_idle_s": 60.0})) as server:
        service, data = server.sessions.service, server.foundation.data
        idle, ended = [await service.start(INSTANCE) for _ in range(2)]
        put_back = await _older(data.store._connection.redis)
        for sid in (idle, ended):
            await service.act(sid, ACTION)
        await put_back()
        monkeypatch.setattr(clock, "now", lambda: time.time() + 100)
        await service.close(ended)
        async with AsyncExitStack() as stack:
            if busy:
                await stack.enter_async_context(data.store.lock(idle, 5))
            sweeping = asyncio.create_task(server.upkeep.reaper.sweep())
            await asyncio.wait([sweeping], timeout=3)
        await sweeping
        assert await service.state(idle) == "live"
        assert (await data.history.session(ended)).actions == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("then", ["asleep", "awake"])
@pytest.mark.parametrize("noticed", ["by an action", "by the reaper", "by a read"])
async def test_redis_has_forgotten_a_sleep(settings: Settings, then: str, noticed: str) -> None:
    """A session that fell asleep after the copy was made is lost with its former container, masked."""
    async with open_server(settings.model_copy(update={"hibernate_s": 0.2})) as server:
        sessions, data = server.sessions, server.foundation.data
        sid = await sessions.service.start(INSTANCE)
        await sessions.service.act(sid, ACTION)
        put_back = await _older(data.store._connection.redis)
        async with asyncio.timeout(60):
            while not (await data.store.session(sid)).asleep:  # type: ignore[union-attr]
                await asyncio.sleep(0.2)
                await sessions.sleeping.look()
        if then == "awake":
            await sessions.acting.sandbox(sid)
        await put_back()
        if noticed == "by the reaper":
            for _ in range(2):
                await server.upkeep.reaper.sweep()
        if noticed == "by a read":
            with pytest.raises((SandboxLost, StateUnavailable)):
                await server.boxes.of_sessions.sandbox(sid)
        told = await sessions.service.act(sid, ACTION.replace("echo x > x.txt", "cat x.txt"))
        assert (told.exit_code, told.seq) == (0, 2), told
        record = await data.store.session(sid)
        assert record is not None
        assert [c.container_id for c in await server.foundation.runtime.list() if c.sid == sid] == [record.container_id]


async def _box(server: Server, **wanted: Any) -> str:
    asked = BoxRequest(BoxKind.NATIVE, image="sandbox-samples/timespan:latest", **wanted)
    return (await server.boxes.creation.create(asked)).sid


@pytest.mark.parametrize("noticed", ["by a request", "by the reaper", "by the next server"])
async def test_redis_has_forgotten_a_boxs_later_end(settings: Settings, noticed: str) -> None:
    """A box whose client has prolonged it ends at its former end; another node may have taken that request."""
    async with open_server(settings) as server:
        data, boxes, reaper = server.foundation.data, server.boxes.boxes, server.upkeep.reaper
        facts: Any = server.foundation.state.boxes
        sid = await _box(server, timeout_s=2.0)
        put_back = await _older(data.store._connection.redis)
        told = (await boxes.set_timeout(sid, 600)).ends_at
        await server.sessions.log.drain()
        await put_back()
        if noticed == "by the next server":
            facts.keep([])
            await server.upkeep.recovery.recover()
        else:
            await asyncio.sleep(2.0)
        if noticed == "by the reaper":
            facts.keep([])  # another node's
            await reaper.sweep()
            record = await data.store.session(sid)
        else:
            record = (await boxes.get(sid)).record
        assert record is not None and (record.state, record.deadline) == ("live", told)
        assert (await data.history.session(sid)).deadline == told  # type: ignore[union-attr]


async def test_redis_has_forgotten_what_became_of_boxes(settings: Settings) -> None:
    """A box with another container by now loses it, or is lost; one that ended comes back; one that runs freezes."""
    async with open_server(settings) as server:
        data, boxes, reaper = server.foundation.data, server.boxes.boxes, server.upkeep.reaper
        woken, asleep, thawed, ended = [await _box(server, timeout_s=600.0) for _ in range(4)]
        await boxes.pause(woken, memory=False)
        for sid in (thawed, ended):
            await boxes.pause(sid)
        put_back = await _older(data.store._connection.redis)
        await boxes.resume(woken)
        await boxes.pause(asleep, memory=False)
        await boxes.resume(thawed)
        assert await boxes.kill(ended)
        await server.sessions.ending.wait_until_removed(ended)
        await server.sessions.log.drain()
        await put_back()
        server.foundation.state.boxes.keep([])
        for _ in range(2):
            await reaper.sweep()
        container_id = (await boxes.get(woken)).record.container_id
        now = {one.container_id: one.paused for one in await server.foundation.runtime.list()}
        assert now == {container_id: False, (await boxes.get(thawed)).record.container_id: False}
        views = {sid: await boxes.get(sid) for sid in (woken, asleep, thawed, ended)}
        assert {sid: view.paused for sid, view in views.items()} == {
            woken: False,
            asleep: True,
            thawed: False,
            ended: False,
        }
        assert views[ended].record.end_reason == "killed" and await data.store.live(settings.node_id) != []


async def test_rules_for_a_network_are_no_former_copy_of_the_box(settings: Settings) -> None:
    """A box that is paused while its network changes runs again, though its pause was acknowledged."""
    async with open_server(settings) as server:
        boxes, runtime = server.boxes.boxes, server.foundation.runtime
        sid = await _box(server, timeout_s=600.0)
        connect: Any = runtime.connect
        pausing: list[asyncio.Task[Any]] = []

        async def paused_meanwhile(container_id: str, *, on: bool) -> bool:
            pausing.append(asyncio.create_task(boxes.pause(sid)))
            await asyncio.sleep(0.3)
            return bool(await connect(container_id, on=on))

        runtime.connect = paused_meanwhile  # type: ignore[method-assign]
        await boxes.set_network(sid, False, (), ())
        await asyncio.gather(*pausing)
        assert (await boxes.get(sid)).paused and (await boxes.get(sid)).box.network == "none"


@pytest.mark.parametrize("noticed", ["by an action", "by the reaper"])
async def test_redis_has_an_ended_session_as_live_again(settings: Settings, noticed: str) -> None:
    """A session that ended with a verdict ends once more, as lost: its records say that it died."""
    async with open_server(settings) as server:
        service, data = server.sessions.service, server.foundation.data
        sid = await service.start(INSTANCE)
        await service.act(sid, ACTION)
        put_back = await _older(data.store._connection.redis)
        assert await service.postprocess(sid) is not None
        reward = await service.reward(sid)
        await server.sessions.ending.wait_until_removed(sid)
        ended = await data.history.session(sid)
        await put_back()
        if noticed == "by an action":
            assert (await service.act(sid, ACTION)).error_code == SandboxLost.code
        else:
            await server.upkeep.reaper.sweep()
        assert await data.history.session(sid) == ended and await service.reward(sid) == reward
        assert await data.store.live(settings.node_id) == [] and server.sessions.starts.used == 0
