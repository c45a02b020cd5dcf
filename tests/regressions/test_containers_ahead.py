"""A session's grading container is created while the session ends. It is removed however the end turns out."""

import asyncio

import pytest

from sandbox_server.app.build import Server, open_server
from sandbox_server.app.engine import open_runtime
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.sandbox.base import Role, Runtime
from sandbox_server.settings import Settings
from sandbox_server.verdicts import VerdictName

from .test_session_ends import ACTION, INSTANCE

LEDGER = "samples__ledger-12"
FINISH = "<function=finish>\n</function>"


async def gradings(runtime: Runtime) -> list[str]:
    """Sids of the sessions that have a grading container."""
    return [container.sid for container in await runtime.list() if container.role is Role.GRADE]


async def until(server: Server, sids: list[str]) -> None:
    """Wait until exactly `sids` have grading containers."""
    for _ in range(1200):
        if await gradings(server.foundation.runtime) == sids:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{await gradings(server.foundation.runtime)} instead of {sids} after 60 s")


async def finished(server: Server, instance: str = INSTANCE) -> str:
    """Start a session, change a file and call `finish`; the grading container exists afterwards."""
    sid = await server.sessions.service.start(instance)
    await server.sessions.service.act(sid, ACTION)
    await server.sessions.service.act(sid, FINISH)
    await until(server, [sid])
    return sid


async def test_used_and_removed(settings: Settings) -> None:
    """The verdict waits only for the tests; the receipt has the duration of each stage."""
    async with open_server(settings) as server:
        sid = await finished(server, LEDGER)
        answer = await server.sessions.service.reward(sid)
        assert answer.verdict.name is VerdictName.UNRESOLVED
        await until(server, [])
        timings_s = (await server.foundation.data.history.receipt(answer.receipt))["timings_s"]
        assert isinstance(timings_s, dict)
        assert {"queue", "create", "setup", "apply", "tests", "parse", "store", "total"} <= timings_s.keys()
        assert all(isinstance(seconds, float) and seconds >= 0 for seconds in timings_s.values())


async def test_the_next_action_after_finish_still_runs(settings: Settings) -> None:
    """`finish` does not end the session: later changes are graded too."""
    async with open_server(settings) as server:
        sid = await finished(server)
        await server.sessions.service.act(sid, ACTION.replace("x.txt", "y.txt"))
        assert (await server.sessions.service.reward(sid)).verdict.patch_applied
        assert b"+++ b/y.txt" in ((await server.sessions.service.patch(sid)).diff or b"")
        await until(server, [])


async def test_a_lost_session(settings: Settings) -> None:
    """No patch will use the container, so it must be removed."""
    async with open_server(settings) as server:
        sid = await finished(server)
        await server.foundation.runtime.remove((await server.sessions.service.view(sid)).record.container_id)
        assert (await server.sessions.service.act(sid, ACTION)).error_code == "sandbox_lost"
        await until(server, [])
        assert (await server.sessions.service.reward(sid)).verdict.name is VerdictName.INFRA


async def test_an_end_that_fails(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt creates another container, so this one must not stay."""
    async with open_server(settings) as server:
        sid = await finished(server)
        with monkeypatch.context() as broken:

            async def unavailable(*_: object) -> None:
                raise CatalogueUnavailable("the disk is full")

            broken.setattr(server.foundation.data.history, "save_patch", unavailable)
            with pytest.raises(CatalogueUnavailable):
                await server.sessions.service.postprocess(sid)
        await until(server, [])
        assert (await server.sessions.service.reward(sid)).verdict.name is VerdictName.UNRESOLVED


async def test_an_unchanged_tree(settings: Settings) -> None:
    """An empty patch is not run, so its container must be removed."""
    async with open_server(settings) as server:
        sid = await server.sessions.service.start(INSTANCE)
        await server.sessions.service.act(sid, FINISH)
        await until(server, [sid])
        assert (await server.sessions.service.reward(sid)).verdict.name is VerdictName.EMPTY_PATCH
        await until(server, [])


async def test_a_server_that_stops(settings: Settings) -> None:
    """A server that stops leaves no container to the next server's reaper."""
    async with open_server(settings) as server:
        sid = await finished(server)
    async with open_runtime(settings) as runtime:
        assert await gradings(runtime) == []
    async with open_server(settings) as server:
        assert (await server.sessions.service.reward(sid)).verdict.name is VerdictName.UNRESOLVED


async def test_an_identical_patch_is_answered_without_a_container(settings: Settings) -> None:
    """Sixteen samples of one instance with the same patch need one run only."""
    async with open_server(settings) as server:
        first, second = [await server.sessions.service.start(INSTANCE) for _ in range(2)]
        for sid in (first, second):
            await server.sessions.service.act(sid, ACTION)
        one = await server.sessions.service.reward(first)
        two = await server.sessions.service.reward(second)
        assert two.verdict == one.verdict
        assert two.receipt != one.receipt
        await until(server, [])


async def test_the_librarys_worker_starts_with_the_first_session_that_needs_it(settings: Settings) -> None:
    """Loaded without need it takes 170 MB; loaded too late it delays the first verdict by seconds."""
    async with open_server(settings) as server:
        library = server.gradings.rewards._queue._grading._graders["swebench"]._library  # type: ignore[attr-defined]  # of this grader alone
        script = await server.sessions.service.start(INSTANCE)
        await asyncio.sleep(0.2)
        assert library._worker is None
        await server.sessions.service.start(LEDGER)
        await asyncio.gather(*server.gradings.rewards._later)
        assert library._worker is not None and library._worker.process.returncode is None
        await server.sessions.service.close(script)
